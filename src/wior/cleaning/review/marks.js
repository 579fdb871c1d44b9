// What a person has said of each row, with notes and undo, kept by the browser. Decisions and answers are such marks.

const UNDECIDED = 0;
const KEEP = 1;
const SKIP = 2;
const FIX = 3; // and the label is added to it
const AMBIGUOUS = -1; // below the others, since browsers keep codes of earlier versions

class Marks {
  constructor(data, kind) {
    this.data = data;
    this.codes = new Int32Array(data.slots);
    this.notes = new Map(); // by slot
    this.labels = [...data.classes]; // and behind them those that somebody added
    this.past = [];
    this.exported = true;
    this.kept = new Kept(`wior-${kind}:${data.fingerprint}`);
    this.elsewhere = { decided: [], notes: [] }; // about the same labels, on rows that this page does not show
    this.load();
  }

  // -1 where there is none
  label(slot) {
    return this.codes[slot] >= FIX ? this.codes[slot] - FIX : -1;
  }

  // the label of this name, which is a new one where there is none
  labelled(name) {
    const label = this.labels.indexOf(name);
    return label < 0 ? this.labels.push(name) - 1 : label;
  }

  note(slot) {
    return this.notes.get(slot) ?? "";
  }

  count(slots = this.codes.length) {
    let decided = 0;
    for (let slot = 0; slot < slots; slot++) if (this.codes[slot]) decided++;
    return decided;
  }

  set(slots, codes, text, notes = null) {
    const before = Int32Array.from(slots, slot => this.codes[slot]);
    const notesBefore = notes && Array.from(slots, slot => this.note(slot));
    const same = (old, now) => old.every((value, i) => value === now[i]);
    if (same(before, codes) && (!notes || same(notesBefore, notes))) return;
    this.past.push({ slots, before, notesBefore, text });
    this.put(slots, codes, notes);
  }

  undo() {
    const last = this.past.pop();
    if (last) this.put(last.slots, last.before, last.notesBefore);
    return last ?? null;
  }

  put(slots, codes, notes) {
    slots.forEach((slot, i) => {
      this.codes[slot] = codes[i];
      if (notes) this.writeNote(slot, notes[i]);
    });
    this.changed();
  }

  writeNote(slot, text) {
    if (text.trim()) this.notes.set(slot, text);
    else this.notes.delete(slot);
    this.changed();
  }

  changed() {
    this.exported = false;
    clearTimeout(this.saving);
    this.saving = setTimeout(() => this.save(), 250);
  }

  get atRisk() {
    return !this.exported && (this.notes.size > 0 || this.codes.some(code => code));
  }

  save() {
    clearTimeout(this.saving);
    const { places, classes } = this.data;
    const decided = [...this.elsewhere.decided];
    this.codes.forEach((code, slot) => code && decided.push([places[slot], code]));
    const notes = [...this.elsewhere.notes, ...Array.from(this.notes, ([slot, text]) => [places[slot], text])];
    const added = this.labels.slice(classes.length);
    const something = decided.length || notes.length;
    this.kept.write(something ? { exported: this.exported, decided, notes, added } : null);
  }

  load() {
    const saved = this.kept.read();
    if (!saved) return;
    try {
      const slots = new Map(Array.from(this.data.places, (place, slot) => [place, slot]));
      this.labels.push(...(saved.added ?? []));
      for (const [place, code] of saved.decided) {
        if (!slots.has(place)) this.elsewhere.decided.push([place, code]);
        else if (code < FIX + this.labels.length) this.codes[slots.get(place)] = code;
      }
      for (const [place, text] of saved.notes ?? []) {
        if (slots.has(place)) this.notes.set(slots.get(place), text);
        else this.elsewhere.notes.push([place, text]);
      }
      this.exported = saved.exported === true;
    } catch {
      this.kept.works = false; // what was kept is none of this page
    }
  }

  warnBeforeLeaving() {
    addEventListener("beforeunload", event => {
      this.save();
      if (this.atRisk) event.preventDefault();
    });
    addEventListener("pagehide", () => this.save());
  }
}

// lines of a file about rows of this page, each line judged by `codeOf`, which returns a code or the reason against it
function readMarks(marks, text, headers, codeOf) {
  const [header, ...lines] = parseCsv(text);
  if (!headers.includes(header?.join())) {
    throw new Error(`its first line must be ${headers[0]}, and is ${(header ?? []).join().slice(0, 80) || "empty"}`);
  }
  const { ids, classes, given, slots } = marks.data;
  const slotOf = new Map(ids.slice(0, slots).map((id, slot) => [id, slot]));
  const found = new Map();
  const refused = new Map();
  for (const line of lines) {
    const slot = slotOf.get(line[0]);
    let reason = "";
    if (slot === undefined) reason = "about a row that is not on this page";
    else if (classes[given[slot]] !== line[1]) reason = "about a row whose given label is another one here";
    else {
      const code = codeOf(line, slot);
      if (typeof code === "string") reason = code;
      else found.set(slot, [code, line[4] ?? marks.note(slot)]);
    }
    if (reason) refused.set(reason, (refused.get(reason) ?? 0) + 1);
  }
  const judged = [...found.values()];
  return {
    taken: found.size,
    refused,
    slots: Uint32Array.from(found.keys()),
    codes: Int32Array.from(judged, ([code]) => code),
    notes: judged.map(([, note]) => note),
  };
}
