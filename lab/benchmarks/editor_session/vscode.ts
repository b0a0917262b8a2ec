// What llama.vscode's completion code needs of the editor: positions, and its settings with their defaults.

import * as fs from "fs";

const { contributes } = JSON.parse(fs.readFileSync(`${process.env.PLUG_IN}/package.json`, "utf8"));
const sections = [contributes.configuration].flat();
const defaults = Object.assign({}, ...sections.map((section) => section.properties));

const setting = (name: string, otherwise?: unknown) =>
  name === "endpoint" ? process.env.ENDPOINT : defaults[`llama-vscode.${name}`]?.default ?? otherwise;

export class Position {
  constructor(public line: number, public character: number) {}
}

export class Range {
  constructor(public start: Position, public end: Position) {}
}

export class InlineCompletionItem {
  constructor(public insertText: string, public range: Range) {}
}

export const InlineCompletionTriggerKind = { Invoke: 0, Automatic: 1 };
export const window: any = { showInformationMessage: console.error, showErrorMessage: console.error };
export const workspace: any = { getConfiguration: () => ({ get: setting, inspect: () => undefined }) };

export default { Position, Range, InlineCompletionItem, InlineCompletionTriggerKind, window, workspace };
