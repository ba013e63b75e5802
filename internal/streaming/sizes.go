package streaming

import (
	"encoding/json"
	"io"
)

// maxSize is the maximum length of one size of a terminal in JSON, in bytes. kubectl sends about 30.
const maxSize = 4 << 10

// readSizes calls f with each size of a terminal until f returns an error. What follows then, or
// follows a size that is too long or no JSON, is discarded until the stream ends: unread, it would
// hold up stdin.
func readSizes(r io.Reader, f func(Size) error) {
	limited := &io.LimitedReader{R: r}
	for dec := json.NewDecoder(limited); ; {
		limited.N = maxSize // the decoder keeps what it reads until a value is complete
		var size Size
		if dec.Decode(&size) != nil || f(size) != nil {
			break
		}
	}
	_, _ = io.Copy(io.Discard, r)
}
