// The Markdown and TeX that language models write, as nodes: code, emphasis, headings, lists and simple formulas. What it
// does not know stays as it was written. Texts become text nodes only, so no response can add HTML to the page.

const FENCE = /^[ \t]*(`{3,})([^`]*)$/;
const CODE = /(?<!`)(`+)(?!`)(.{1,2000}?)(?<!`)\1(?!`)/g;
const KEPT = /\uE000(\d+)\uE001/; // stands for the code of that number while the rest is read
const EMPHASIS = /\*\*\*(?=\S)(.{1,1000}?)(?<=\S)\*\*\*|(?<![\w*])\*\*(?=\S)(.{1,1000}?)(?<=\S)\*\*(?![\w*])|(?<![\w*])\*(?=[^\s*])([^*\n]{1,1000}?)(?<=\S)\*(?![\w*])/g;
const EMPHASES = [["strong", "em"], ["strong"], ["em"]]; // of the groups of EMPHASIS
const MAX_DEPTH = 3; // of emphasis within emphasis
const FORMULA = /(?<![\w:])\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\]|\$\$([^$]{1,500})\$\$|(?<![\w$\\])\$(?=[^\s$])([a-zA-Z]|[^$\n]{0,300}?[\\^_{][^$\n]{0,300}?)(?<=\S)\$(?![\w$])/gs;
const COMMAND = /\\([a-zA-Z]+|[%$,;! {}])/g;
const SUPERSCRIPTS = new Map([..."0123456789-n°"].map((character, n) => [character, "⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ°"[n]]));

const SYMBOLS = new Map(Object.entries({
  times: "×", cdot: "·", cdots: "⋯", div: "÷", pm: "±", mp: "∓", approx: "≈", sim: "∼", equiv: "≡", neq: "≠", ne: "≠", leq: "≤",
  le: "≤", geq: "≥", ge: "≥", degree: "°", circ: "°", infty: "∞", to: "→", rightarrow: "→", leftarrow: "←", implies: "⇒",
  Rightarrow: "⇒", iff: "⇔", ldots: "…", dots: "…", in: "∈", notin: "∉", subset: "⊂", cup: "∪", cap: "∩", sum: "∑",
  prod: "∏", int: "∫", partial: "∂", nabla: "∇", forall: "∀", exists: "∃", angle: "∠", perp: "⊥", therefore: "∴",
  quad: " ", qquad: " ", left: "", right: "", displaystyle: "", ",": " ", ";": " ", "!": "", " ": " ", "%": "%", $: "$",
  "{": "{", "}": "}", alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ε", theta: "θ", lambda: "λ", mu: "μ",
  pi: "π", rho: "ρ", sigma: "σ", tau: "τ", phi: "φ", omega: "ω", Delta: "Δ", Sigma: "Σ", Omega: "Ω", Pi: "Π",
  ...Object.fromEntries(["sin", "cos", "tan", "log", "ln", "exp", "lim", "min", "max", "gcd", "mod"].map((name) => [name, name])),
}));

/** A text as nodes and strings, to replace the children of an element with `white-space: pre-wrap`. */
export function richText(text) {
  const found = [];
  let lines = [];
  let fence; // of the code that is read
  const flush = () => {
    if (fence) found.push(element("code", "block", lines.join("\n")));
    else if (lines.length) found.push(...prose(lines.join("\n")));
    lines = [];
  };
  for (const line of text.split("\n")) {
    const [, ticks, info] = FENCE.exec(line) ?? [];
    if (ticks && (fence ? ticks.length >= fence.length && !info.trim() : true)) {
      flush();
      fence = fence ? undefined : ticks;
    } else {
      lines.push(line);
    }
  }
  flush();
  return found;
}

function prose(text) {
  const codes = [];
  const withoutCode = text.replace(/[\uE000\uE001]/g, "").replace(CODE, (_, ticks, code) => `\uE000${codes.push(code) - 1}\uE001`);
  const plain = plainFormulas(withoutCode).replace(/^([ \t]*)[-*+] +(?=\S)/gm, "$1• ");
  return plain.split(/^(#{1,6} .*)$/m).flatMap((part, number) => (
    number % 2 ? [element("strong", "", ...emphasized(part.replace(/^#+ +/, ""), codes))] : emphasized(part, codes)));
}

function emphasized(text, codes, depth = 0) {
  if (depth === MAX_DEPTH) return withCodes(text, codes);
  const found = [];
  let end = 0;
  for (const match of text.matchAll(EMPHASIS)) {
    const group = match.findIndex((content, number) => number > 0 && content !== undefined);
    const content = emphasized(match[group], codes, depth + 1);
    const nested = EMPHASES[group - 1].reduceRight((inner, name) => [element(name, "", ...inner)], content);
    found.push(...withCodes(text.slice(end, match.index), codes), ...nested);
    end = match.index + match[0].length;
  }
  return [...found, ...withCodes(text.slice(end), codes)];
}

function withCodes(text, codes) {
  return text.split(KEPT).map((part, number) => (number % 2 ? element("code", "", codes[part]) : part));
}

/** "\( 3 \times \frac{1}{2} \)" → "3 × 1/2". A formula with a command that is not known stays as it is. */
function plainFormulas(text) {
  if (!/[\\$]/.test(text)) return text;
  return text.replace(FORMULA, (whole, inline, display, dollars, dollar) => {
    if (dollars !== undefined && !/[\\^_{=]/.test(dollars)) return whole;
    const plain = plainFormula(inline ?? display ?? dollars ?? dollar);
    return plain.includes("\\") ? whole : plain;
  });
}

function plainFormula(tex) {
  let plain = tex.trim().replace(/\\circ(?![a-zA-Z])/g, "°");
  for (let before; before !== plain;) { // what stands in braces first
    before = plain;
    plain = plain
      .replace(/\\(?:boxed|text|textbf|mathrm|mathbf|mathit|mathbb)\{([^{}]*)\}/g, "$1")
      .replace(/\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}/g, (_, over, under) => `${operand(over)}/${operand(under)}`)
      .replace(/\\sqrt(?:\[(\d)\])?\{([^{}]*)\}/g, (_, degree, root) => `${superscripts(degree ?? "")}√${operand(root)}`)
      .replace(/\^\{([^{}]*)\}/g, (_, power) => superscripts(power) ?? `^${operand(power)}`)
      .replace(/_\{([^{}]*)\}/g, (_, index) => `_${operand(index)}`);
  }
  plain = plain.replace(COMMAND, (command, name) => SYMBOLS.get(name) ?? command);
  return plain.replace(/\^([\dn°])/g, (_, power) => superscripts(power)).replace(/ {2,}/g, " ").trim();
}

const operand = (text) => (/^[\w.,√]*$/.test(text) ? text : `(${text})`);

/** undefined if a character has no superscript. */
const superscripts = (text) => ([...text].every((one) => SUPERSCRIPTS.has(one))
  ? [...text].map((one) => SUPERSCRIPTS.get(one)).join("") : undefined);

function element(name, className, ...content) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...content);
  return made;
}
