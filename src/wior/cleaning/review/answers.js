// What a person says the labels are. An answer is a label, or "cannot tell", or the row is skipped.

const ANSWER_HEADER = ["id", "given", "verified", "chance"];

class Answers extends Marks {
  constructor(data) {
    super(data, "verify");
  }

  // whether the label of the answer is the given one
  agrees(slot) {
    return this.label(slot) === this.data.given[slot];
  }

  get answered() {
    return this.codes.reduce((count, code) => count + (code >= FIX), 0);
  }

  // a column of notes is there where there are notes
  csv() {
    const { ids, classes, given, chances } = this.data;
    const noted = this.codes.some((code, slot) => code >= FIX && this.notes.has(slot));
    const lines = [csvLine(noted ? [...ANSWER_HEADER, "note"] : ANSWER_HEADER)];
    this.codes.forEach((code, slot) => {
      if (code < FIX) return;
      const line = [ids[slot], classes[given[slot]], this.labels[code - FIX], String(chances[slot])];
      lines.push(csvLine(noted ? [...line, this.note(slot)] : line));
    });
    return lines.join("");
  }

  read(text) {
    const headers = [ANSWER_HEADER.join(), [...ANSWER_HEADER, "note"].join()];
    const found = readMarks(this, text, headers, ([, , name]) =>
      name?.trim() || this.labels.includes(name) ? FIX + this.labelled(name) : "without a verified label",
    );
    this.set(found.slots, found.codes, `the import of ${countText(found.taken, "answer", "answers")}`, found.notes);
    return found;
  }
}
