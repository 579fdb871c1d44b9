// All there is about one row, in a dialog: every field, the picture larger, similar rows, and a note to write.

class RowView {
  constructor(page) {
    this.page = page;
    this.dialog = find("row-view");
    this.title = find("row-title");
    this.body = find("row-body");
    this.labels = makeLabels();
    this.actions = new Actions(page);
    this.actions.root.classList.add("wide");
    this.likely = new Likely(page);
    find("row-actions").append(this.actions.root);
    find("row-likely").append(this.likely.root);
    this.note = find("row-note");
    if (page.pictures) this.canvas = make("canvas", "", "", { role: "img" });
  }

  get open() {
    return this.dialog.open;
  }

  show(slot, place, total) {
    const { data, decisions } = this.page;
    const another = slot !== this.slot || !this.open;
    this.slot = slot;
    this.title.textContent = data.ids[slot];
    const word = decisions.word(slot);
    find("row-place").textContent = `${whole(place + 1)} of ${whole(total)}${word ? ` · decided: ${word}` : ""}`;
    showLabels(this.labels, data, slot);
    this.actions.show(slot);
    this.likely.show(slot);
    if (this.note.value !== decisions.note(slot)) this.note.value = decisions.note(slot);
    // what was opened or scrolled to stays so while one row is decided on
    if (another) this.fill(slot);
    if (!this.open) {
      this.dialog.showModal();
      this.dialog.focus();
    }
    if (another) this.body.scrollTop = 0;
  }

  fill(slot) {
    const { data, pictures } = this.page;
    const parts = [this.labels.root];
    if (pictures?.has(slot)) {
      pictures.draw(this.canvas, slot);
      this.canvas.setAttribute("aria-label", describe(data, slot));
      const picture = make("div", "picture");
      picture.append(this.canvas);
      parts.unshift(picture);
    }
    const record = data.records[slot];
    if (record) {
      parts.push(columnsList(data.columns, record, this.page.words()));
      if (data.cut && isCut(record)) parts.push(make("p", "remark", CUT));
    } else if (data.columns.length) {
      parts.push(make("p", "remark", "The record of this row is not on this page."));
    }
    parts.push(make("p", "remark", `place ${whole(data.places[slot])} in the data, counted from 0`));
    const similar = similarRows(this.page, slot);
    if (similar) parts.push(similar);
    this.body.replaceChildren(...parts);
  }
}
