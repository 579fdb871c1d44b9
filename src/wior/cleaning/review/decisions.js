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

  csv() {
    const { ids, classes, given } = this.data;
    const lines = [csvLine(HEADER)];
    this.codes.forEach((code, slot) => {
      if (!code) return;
      const name = classes[given[slot]];
      const label = code === KEEP ? name : (this.labels[this.label(slot)] ?? "");
      lines.push(csvLine([ids[slot], name, this.word(slot), label, this.note(slot)]));
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
