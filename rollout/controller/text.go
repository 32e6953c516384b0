package controller

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// maxListed is how many names a message holds.
	maxListed = 10
	// maxMessageBytes is the limit of Slot.message in the API.
	maxMessageBytes = 1024
)

// list joins names for a message, ten at most.
func list(names []string) string {
	if len(names) <= maxListed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
}

// oneLine is for texts of others, who may have several.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// clip cuts a message to the API's limit, between characters.
func clip(message string) string { return cutTo(message, maxMessageBytes) }

func cutTo(message string, limit int) string {
	if len(message) <= limit {
		return message
	}
	cut := limit - len("…")
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "…"
}

// advise says what can be done after what is wrong, which is cut where both do
// not fit.
func advise(message, advice string) string {
	return cutTo(message, maxMessageBytes-len("; ")-len(advice)) + "; " + advice
}

// aboutNode is an entry of a message: which node, since when if that is known, and why.
func aboutNode(node string, since time.Time, why string) string {
	about := node
	if !since.IsZero() {
		about += " since " + since.UTC().Format(time.RFC3339)
	}
	if why == "" { // it has just gone
		return about
	}
	return about + ": " + why
}
