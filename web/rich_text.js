// The Markdown and TeX that language models write, as nodes: code, emphasis, headings, lists and simple formulas. What it
// does not know stays as it was written. Texts become text nodes only, so no response can add HTML to the page.

const FENCE = /```(?:[\w+#-]*\n)?/;
const INLINE = /`([^`\n]+)`|\*\*(?=\S)(.+?)(?<=\S)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=\S)\*(?![\w*])/;
const ELEMENTS = ["code", "strong", "em"]; // of the groups of INLINE
const FORMULA = /\\\((.+?)\\\)|\\\[(.+?)\\\]|\$\$(.+?)\$\$|(?<![\w$])\$([^$\n]*[\\^_{][^$\n]*)\$(?!\d)/gs;
const COMMAND = /\\[a-zA-Z]{2,}|\\[%$,;! ]/g;

const SYMBOLS = {
  times: "×", cdot: "·", div: "÷", pm: "±", approx: "≈", sim: "≈", neq: "≠", ne: "≠", leq: "≤", le: "≤", geq: "≥",
  ge: "≥", pi: "π", degree: "°", circ: "°", infty: "∞", rightarrow: "→", to: "→", ldots: "…", dots: "…", quad: " ",
  qquad: " ", left: "", right: "", displaystyle: "", ",": " ", ";": " ", "!": "", " ": " ", "%": "%", $: "$",
};
const SUPERSCRIPTS = { 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹", "-": "⁻", n: "ⁿ", "°": "°" };

/** A text as nodes and strings, to replace the children of an element with `white-space: pre-wrap`. */
export function richText(text) {
  return text.split(FENCE).flatMap((part, number) => (
    number % 2 ? [element("code", "block", part.trimEnd())] : lines(plainFormulas(part))));
}

function lines(text) {
  return text.split(/^(#{1,6} .*)$/m).flatMap((part, number) => (
    number % 2 ? [element("strong", "", ...inline(part.replace(/^#+ +/, "")))]
      : inline(part.replace(/^([ \t]*)[-*+] (?=\S)/gm, "$1• "))));
}

function inline(text) {
  const found = INLINE.exec(text);
  if (!found) return [text];
  const group = found.findIndex((content, number) => number > 0 && content !== undefined);
  const content = group === 1 ? [found[1]] : inline(found[group]);
  const made = element(ELEMENTS[group - 1], "", ...content);
  return [text.slice(0, found.index), made, ...inline(text.slice(found.index + found[0].length))];
}

/** "\( 3 \times \frac{1}{2} \)" → "3 × 1/2" */
export function plainFormulas(text) {
  if (!/[\\$]/.test(text)) return text;
  return text.replace(FORMULA, (_, ...groups) => plainFormula(groups.slice(0, 4).find((group) => group !== undefined)));
}

function plainFormula(tex) {
  let plain = tex.trim();
  for (let before; before !== plain;) { // what stands in braces first
    before = plain;
    plain = plain
      .replace(/\\(?:boxed|text|textbf|mathrm|mathbf|mathit)\{([^{}]*)\}/g, "$1")
      .replace(/\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}/g, (_, over, under) => `${operand(over)}/${operand(under)}`)
      .replace(/\\sqrt\{([^{}]*)\}/g, (_, root) => `√${operand(root)}`)
      .replace(/\^\{([^{}]*)\}/g, (_, power) => superscript(power))
      .replace(/_\{([^{}]*)\}/g, "_$1");
  }
  plain = plain.replace(COMMAND, (command) => SYMBOLS[command.slice(1)] ?? command);
  return plain.replace(/\^([\dn°])/g, (_, power) => superscript(power)).replace(/ {2,}/g, " ").trim();
}

const operand = (text) => (/^[\w.,√]*$/.test(text) ? text : `(${text})`);

const superscript = (power) => ([...power].every((one) => one in SUPERSCRIPTS)
  ? [...power].map((one) => SUPERSCRIPTS[one]).join("") : `^${operand(power.replace("\\circ", "°"))}`);

function element(name, className, ...content) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...content);
  return made;
}
