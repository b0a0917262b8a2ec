// The words of all turns, kept up to date by `rejoinder.caption` events.

export class CaptionText {
  constructor() {
    this.turns = new Map(); // item id → { stable, provisional, offset }: words with times, and what is added to them
    this.offset = 0; // seconds to add to times of new turns: a session counts from 0, and only audio that it receives
  }

  apply({ item_id: id, first, stable, provisional, final }) {
    const { offset, stable: before } = this.turns.get(id) ?? { offset: this.offset, stable: [] };
    const shifted = (words) => words.map((one) => ({ ...one, start: one.start + offset, end: one.end + offset }));
    const kept = before.slice(0, first);
    this.turns.set(id, { stable: [...kept, ...shifted(stable)], provisional: shifted(provisional), offset });
    if (final && !first && !stable.length) this.turns.delete(id); // nothing was said
    return id;
  }

  /** No turn goes on: forget the words that were not stable yet. Returns the ids of turns that had some. */
  dropProvisional() {
    const dropped = [...this.turns.keys()].filter((id) => this.turns.get(id).provisional.length);
    for (const id of dropped) {
      const turn = this.turns.get(id);
      turn.provisional = [];
      if (!turn.stable.length) this.turns.delete(id);
    }
    return dropped;
  }

  get words() {
    return [...this.turns.values()].flatMap(({ stable }) => stable);
  }
}

export const textOf = (words) => words.map(({ word }) => word).join(" ");
