// Package clip shortens texts.
package clip

import "strings"

// Text returns at most the first most bytes of a text, with an ellipsis if there are more. A
// shortened text does not keep the rest in memory, and is valid UTF-8.
func Text(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
