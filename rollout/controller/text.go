package controller

import (
	"fmt"
	"strings"
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

// clip cuts a message to the API's limit, between characters.
func clip(message string) string {
	if len(message) <= maxMessageBytes {
		return message
	}
	cut := maxMessageBytes - len("…")
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "…"
}
