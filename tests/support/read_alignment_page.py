"""What a page of alignments holds, read by the HTML parser of the standard library."""

from html.parser import HTMLParser

import numpy as np

VOID = {"meta"}


class Page(HTMLParser):
    """Tags with their attributes in order, and texts by the tags around them."""

    def __init__(self, text):
        super().__init__()
        self.open_tags = []
        self.tags = []
        self.texts = []  # (names of the open tags, text)
        self.pairs = []
        self.feed(text)
        self.close()
        assert self.open_tags == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if tag not in VOID:
            self.open_tags.append(tag)
        if tag == "section":
            self.pairs.append({"title": "", "lines": [], "columns": [], "rows": [], "cells": []})
        if attrs.get("class") == "tokens":
            self.pairs[-1]["lines"].append((attrs, []))
        if tag == "td" and "style" in attrs:
            name, _, value = attrs["style"].partition(":")
            assert name == "--w"
            self.pairs[-1]["cells"].append(float(value))

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag

    def handle_data(self, data):
        self.texts.append((tuple(self.open_tags), data))
        if self.open_tags[-1:] == ["h2"]:
            self.pairs[-1]["title"] += data
        if self.open_tags[-2:] == ["button", "bdi"]:
            self.pairs[-1]["lines"][-1][1].append(data)
        if self.open_tags[-2:] == ["th", "bdi"]:
            self.pairs[-1]["columns" if "thead" in self.open_tags else "rows"].append(data)

    def weights(self, pair):
        """(T, S), as the cells of the table have it."""
        pair = self.pairs[pair]
        return np.array(pair["cells"]).reshape(len(pair["rows"]), len(pair["columns"]))

    def tokens(self, pair):
        """Source tokens and target tokens, as the two lines have them."""
        return tuple(tokens for _, tokens in self.pairs[pair]["lines"])
