// What was decided on each slot, written to CSV and read from it.

const WORDS = { [UNDECIDED]: "", [KEEP]: "keep", [SKIP]: "skip", [FIX]: "fix", [AMBIGUOUS]: "ambiguous" };
const HEADER = ["id", "given", "decision", "label", "note"];

class Decisions extends Marks {
  constructor(data) {
    super(data, "review");
  }

  word(slot) {
    return WORDS[Math.min(this.codes[slot], FIX)];
  }

  // of a verified row whose given label is wrong the right one is known, so that it is fixed with the others
  exportedCode(slot) {
    const { given, suggested } = this.data;
    const known = isVerified(this.data, slot) && given[slot] !== suggested[slot];
    return this.codes[slot] || (known ? FIX + suggested[slot] : UNDECIDED);
  }

  // the corrections of verified rows that are exported with what was decided here
  get corrections() {
    let number = 0;
    for (let slot = this.data.open; slot < this.data.slots; slot++)
      if (!this.codes[slot] && this.exportedCode(slot)) number++;
    return number;
  }

  csv() {
    const { ids, classes, given } = this.data;
    const lines = [csvLine(HEADER)];
    this.codes.forEach((_, slot) => {
      const code = this.exportedCode(slot);
      if (!code) return;
      const name = classes[given[slot]];
      const label = code === KEEP ? name : (this.labels[code - FIX] ?? "");
      lines.push(csvLine([ids[slot], name, WORDS[Math.min(code, FIX)], label, this.note(slot)]));
    });
    return lines.join("");
  }

  // returns how many lines were taken and, for each reason, how many were not
  read(text) {
    // decisions of earlier versions have no notes
    const headers = [HEADER.join(), HEADER.slice(0, 4).join()];
    const found = readMarks(this, text, headers, ([, , word, label]) => this.codeOf(word, label ?? ""));
    this.set(found.slots, found.codes, `the import of ${countText(found.taken, "decision", "decisions")}`, found.notes);
    return found;
  }

  codeOf(word, label) {
    if (word === "fix") {
      const known = label.trim() || this.labels.includes(label);
      return known ? FIX + this.labelled(label) : "with a fix that has no label";
    }
    const code = { keep: KEEP, skip: SKIP, ambiguous: AMBIGUOUS }[word];
    return code ?? "with a decision other than keep, fix, skip, ambiguous";
  }
}
