package text

import "strings"

// Clip returns at most the first most bytes of a text, with an ellipsis if there are more. A
// shortened text does not keep the rest in memory, and is valid UTF-8.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
