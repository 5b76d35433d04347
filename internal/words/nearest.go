package words

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/agext/levenshtein"
)

// Offered is how many names a sentence offers in place of one that is not there.
const Offered = 5

// Nearest are the names that somebody may have meant by another, the likeliest first: those that differ in case and punctuation
// only; if there are none, those that the fewest typing mistakes make of it, and those that have it in them or are in it.
func Nearest(name string, among []string) []string {
	const atLeast, mistakes = 3, 3
	type likely struct {
		name            string
		likeness, apart int
	}
	want := letters(name)
	size := len([]rune(want))
	if size == 0 {
		return nil
	}
	var found []likely
	for _, other := range among {
		is := letters(other)
		length := len([]rune(is))
		apart := max(size-length, length-size)
		mistyped := mistakes + 1
		if apart <= mistakes {
			mistyped = levenshtein.Distance(want, is, nil)
		}
		switch {
		case is == want:
			found = append(found, likely{other, 0, 0})
		case mistyped <= min(mistakes, (size+1)/3):
			found = append(found, likely{other, 1, mistyped})
		case min(size, length) >= atLeast && (strings.Contains(is, want) || strings.Contains(want, is)):
			found = append(found, likely{other, 2, apart})
		}
	}
	slices.SortStableFunc(found, func(a, b likely) int {
		return cmp.Or(a.likeness-b.likeness, a.apart-b.apart, strings.Compare(a.name, b.name))
	})
	if len(found) == 0 {
		return nil
	}
	best := found[0]
	found = slices.DeleteFunc(found, func(l likely) bool {
		return best.likeness == 0 && l.likeness > 0 || best.likeness == 1 && l.likeness == 1 && l.apart > best.apart
	})
	return slices.Compact(Each(found, func(l likely) string { return l.name }))
}

// letters are the letters and digits of a name, all small.
func letters(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}

// DidYouMean offers the nearest of the names that there are in place of one that is not there, "" where none is near.
func DidYouMean(name string, all []string) string {
	near := Nearest(name, all)
	if len(near) == 0 {
		return ""
	}
	return Question(QuoteAll(near[:min(len(near), Offered)]))
}

// Question asks which of some was meant.
func Question(texts []string) string {
	last := len(texts) - 1
	if last == 0 {
		return "Did you mean " + texts[0] + "?"
	}
	return "Did you mean " + strings.Join(texts[:last], ", ") + " or " + texts[last] + "?"
}

// Meant begins a sentence with what DidYouMean asks, if it asks anything.
func Meant(name string, all []string, then string) string {
	return strings.TrimSpace(DidYouMean(name, all) + " " + then)
}

// Some lists the names that there are in place of one that is not there: few of them, the nearest first, and how many more there are.
func Some(name string, all []string) string {
	if len(all) <= Offered {
		return JoinAll(all)
	}
	first := Nearest(name, all)
	for _, other := range all {
		if !slices.Contains(first, other) {
			first = append(first, other)
		}
	}
	return strings.Join(first[:Offered], ", ") + fmt.Sprintf(" and %d more", len(first)-Offered)
}

// Instead says which names there are in place of one that is not there: the nearest, or else some, and where all the others
// are, as in "printed by gpu-agent inventory"; "" where nothing prints them.
func Instead(name string, all []string, where string) string {
	all = slices.Compact(slices.Sorted(slices.Values(all)))
	told := len(Nearest(name, all))
	text := DidYouMean(name, all)
	switch {
	case len(all) == 0:
		return "There is none."
	case text == "" && len(all) == 1:
		return "There is only " + QuoteAll(all)[0] + "."
	case text == "" && len(all) <= Offered:
		return "There are " + Join(QuoteAll(all)) + "."
	case text == "":
		told = Offered
		text = "There are " + Some("", QuoteAll(all)) + "."
	}
	told = min(told, Offered)
	if where == "" || told == len(all) {
		return text
	}
	return text + fmt.Sprintf(" All %d are %s.", len(all), where)
}
