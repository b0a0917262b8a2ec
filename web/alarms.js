// The user's timers, alarms and reminders, as the server reports them, with the time that is left of each timer.

import { drawSoon } from "./drawing.js";

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;

export class Alarms {
  constructor(list, realtime) {
    this.list = list;
    this.alarms = []; // { kind, text, dueAt }, the next one first; dueAt on the clock of `performance.now()`
    realtime.addEventListener("rejoinder.alarms", ({ detail: { alarms } }) => {
      this.alarms = alarms.map(({ due_in_s: left, ...alarm }) => ({ ...alarm, dueAt: performance.now() + SECOND_MS * left }));
      clearInterval(this.clock);
      if (alarms.length) this.clock = setInterval(() => this.show(), SECOND_MS);
      this.show();
    });
  }

  show() {
    this.alarms = this.alarms.filter(({ dueAt }) => dueAt > performance.now()); // those that are due are spoken
    if (!this.alarms.length) clearInterval(this.clock);
    drawSoon(this, () => {
      this.list.hidden = !this.alarms.length;
      const lines = this.alarms.map(describe);
      while (this.list.children.length > lines.length) this.list.lastChild.remove();
      lines.forEach((line, n) => {
        const element = this.list.children[n] ?? this.list.appendChild(document.createElement("li"));
        if (element.textContent !== line) element.textContent = line;
      });
    });
  }
}

/** "Pasta timer 1:05", "Alarm 06:40", "Reminder 14:00: call mum" */
function describe({ kind, text, dueAt }) {
  const leftMs = dueAt - performance.now();
  if (kind === "timer") return `${capitalized(`${text} timer`.trim())} ${countdown(Math.ceil(leftMs / SECOND_MS))}`;
  // This device's clock may differ from the server's by some seconds.
  const due = clock(new Date(MINUTE_MS * Math.round((Date.now() + leftMs) / MINUTE_MS)));
  return kind === "alarm" ? `${capitalized(`${text} alarm`.trim())} ${due}` : `Reminder ${due}: ${text}`;
}

function countdown(seconds) {
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}:${two(seconds % 60)}`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`;
}

function clock(moment) {
  const time = moment.toLocaleTimeString([], { hour: "numeric", minute: "2-digit" });
  const isToday = moment.toDateString() === new Date().toDateString();
  return isToday ? time : `${moment.toLocaleDateString([], { weekday: "short", day: "numeric", month: "short" })}, ${time}`;
}

const capitalized = (text) => text[0].toUpperCase() + text.slice(1);
