package streaming

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// Clients send any bytes as sizes. All are read, sizes are those of a decoder of JSON, and none comes
// after one that is not valid.
func FuzzSizes(f *testing.F) {
	f.Add([]byte(`{"Width":80,"Height":24}{"Width":81}`), uint8(9))
	f.Add([]byte(`{"Width":-1}{"Width":1}`), uint8(9))
	f.Add([]byte(` [] {"Width":1}`), uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, most uint8) {
		var want []Size
		for dec := json.NewDecoder(bytes.NewReader(data)); len(data) <= maxSize && len(want) <= int(most); {
			var size Size
			if dec.Decode(&size) != nil {
				break
			}
			want = append(want, size)
		}
		var got []Size
		r := bytes.NewReader(data)
		readSizes(r, func(size Size) error {
			got = append(got, size)
			if len(got) > int(most) {
				return errors.New("the session ends")
			}
			return nil
		})
		if _, err := r.ReadByte(); err != io.EOF {
			t.Error("the rest is not read, and holds up other streams")
		}
		if len(data) > maxSize {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("%v, want %v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%v, want %v", got[i], want[i])
			}
		}
	})
}
