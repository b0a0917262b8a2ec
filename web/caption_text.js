// The words of all turns, kept up to date by `rejoinder.caption` events.

export class CaptionText {
  constructor() {
    this.turns = new Map(); // item id → { stable, provisional }: words with times
    this.offset = 0; // seconds from the first session's start to this one's: a new session counts from 0 again
  }

  apply({ item_id: id, first, stable, provisional, final }) {
    const shifted = (words) => words.map((one) => ({ ...one, start: one.start + this.offset, end: one.end + this.offset }));
    const turn = this.turns.get(id) ?? { stable: [] };
    const kept = turn.stable.slice(0, first);
    this.turns.set(id, { stable: [...kept, ...shifted(stable)], provisional: shifted(provisional) });
    if (final && !first && !stable.length) this.turns.delete(id); // nothing was said
    return id;
  }

  get words() {
    return [...this.turns.values()].flatMap(({ stable }) => stable);
  }
}

export const textOf = (words) => words.map(({ word }) => word).join(" ");
