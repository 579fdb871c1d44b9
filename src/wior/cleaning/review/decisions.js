// What was decided on each slot, with undo, kept by the browser, written to CSV and read from it.

const UNDECIDED = 0;
const KEEP = 1;
const SKIP = 2;
const FIX = 3; // and the label is added to it

class Decisions {
  constructor(data) {
    this.data = data;
    this.codes = new Int32Array(data.slots);
    this.past = [];
    this.exported = true;
    this.kept = true; // by the browser
    this.key = `wior-review:${data.fingerprint}`;
    this.elsewhere = []; // decided on another page about the same labels, on rows that this one does not show
    this.load();
  }

  // of a fix; -1 where there is none
  label(slot) {
    return this.codes[slot] - FIX;
  }

  word(slot) {
    return ["", "keep", "skip", "fix"][Math.min(this.codes[slot], FIX)];
  }

  count(slots = this.codes.length) {
    let decided = 0;
    for (let slot = 0; slot < slots; slot++) if (this.codes[slot]) decided++;
    return decided;
  }

  set(slots, codes, text) {
    const before = Int32Array.from(slots, slot => this.codes[slot]);
    if (before.every((code, i) => code === codes[i])) return;
    this.past.push({ slots, before, text });
    slots.forEach((slot, i) => (this.codes[slot] = codes[i]));
    this.changed();
  }

  undo() {
    const last = this.past.pop();
    if (!last) return null;
    last.slots.forEach((slot, i) => (this.codes[slot] = last.before[i]));
    this.changed();
    return last;
  }

  changed() {
    this.exported = false;
    clearTimeout(this.saving);
    this.saving = setTimeout(() => this.save(), 250);
  }

  get atRisk() {
    return !this.exported && this.codes.some(code => code);
  }

  save() {
    clearTimeout(this.saving);
    const decided = [...this.elsewhere];
    this.codes.forEach((code, slot) => code && decided.push([this.data.places[slot], code]));
    // where a page comes from a file, a browser may have no storage or refuse it
    try {
      if (decided.length) localStorage.setItem(this.key, JSON.stringify({ exported: this.exported, decided }));
      else localStorage.removeItem(this.key);
      this.kept = true;
    } catch {
      if (this.kept) this.refused();
      this.kept = false;
    }
  }

  refused() {} // what to do when the browser stops keeping decisions

  load() {
    try {
      const saved = JSON.parse(localStorage.getItem(this.key));
      if (!saved) return;
      const slots = new Map(Array.from(this.data.places, (place, slot) => [place, slot]));
      for (const [place, code] of saved.decided) {
        if (!slots.has(place)) this.elsewhere.push([place, code]);
        else if (code < FIX + this.data.classes.length) this.codes[slots.get(place)] = code;
      }
      this.exported = saved.exported === true;
    } catch {
      this.kept = false;
    }
  }

  csv() {
    const { ids, classes, given } = this.data;
    const lines = [csvLine(["id", "given", "decision", "label"])];
    this.codes.forEach((code, slot) => {
      if (!code) return;
      const name = classes[given[slot]];
      const label = code === KEEP ? name : code === SKIP ? "" : classes[code - FIX];
      lines.push(csvLine([ids[slot], name, this.word(slot), label]));
    });
    return lines.join("");
  }

  // returns how many lines were taken and, for each reason, how many were not
  read(text) {
    const [header, ...lines] = parseCsv(text);
    if (header?.join() !== "id,given,decision,label") {
      throw new Error(
        `its first line must be id,given,decision,label, and is ${(header ?? []).join().slice(0, 80) || "empty"}`,
      );
    }
    const { ids, classes, given } = this.data;
    const slotOf = new Map(ids.map((id, slot) => [id, slot]));
    const labelOf = new Map(classes.map((name, label) => [name, label]));
    const found = new Map();
    const refused = new Map();
    for (const [id, name, word, label] of lines) {
      const slot = slotOf.get(id);
      let reason = "";
      if (slot === undefined) reason = "about a row that is not on this page";
      else if (classes[given[slot]] !== name) reason = "about a row whose given label is another one here";
      else if (word === "keep") found.set(slot, KEEP);
      else if (word === "skip") found.set(slot, SKIP);
      else if (word !== "fix") reason = "with a decision other than keep, fix, skip";
      else if (!labelOf.has(label)) reason = "with a label that is no class";
      else found.set(slot, FIX + labelOf.get(label));
      if (reason) refused.set(reason, (refused.get(reason) ?? 0) + 1);
    }
    this.set(
      Uint32Array.from(found.keys()),
      Int32Array.from(found.values()),
      `the import of ${whole(found.size)} decisions`,
    );
    return { taken: found.size, refused };
  }
}
