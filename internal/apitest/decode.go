package apitest

import (
	"encoding/json"
	"regexp"
	"testing"
)

// hugeQuantity is a quantity that takes client-go minutes to decode.
var hugeQuantity = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)

// Decode is for fuzz tests that read objects of an API server. It returns the object that an API server
// can have after it was sent data, and the JSON of it; false if there is none.
func Decode[T any](tb testing.TB, data []byte) (object T, canonical []byte, ok bool) {
	tb.Helper()
	var sent T
	if hugeQuantity.Match(data) || json.Unmarshal(data, &sent) != nil {
		return object, nil, false
	}
	canonical, err := json.Marshal(sent)
	if err != nil {
		return object, nil, false
	}
	if err := json.Unmarshal(canonical, &object); err != nil {
		tb.Fatalf("%s: %v", canonical, err)
	}
	return object, canonical, true
}
