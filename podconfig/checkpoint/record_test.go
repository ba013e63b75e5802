package checkpoint

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecord(t *testing.T) {
	key, err := newKey(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	other, err := newKey(bytes.Repeat([]byte{8}, 16))
	require.NoError(t, err)
	content := []byte(`{"a":"b"}`)
	open, err := pack("n", content, nil)
	require.NoError(t, err)
	locked, err := pack("n", content, key)
	require.NoError(t, err)
	assert.NotContains(t, string(locked), `"b"`)
	flipped := bytes.Clone(open)
	flipped[len(flipped)-2] ^= 1

	for _, test := range []struct {
		name   string
		record []byte
		as     string
		want   error
	}{
		{"not encrypted", open, "n", errPlain},
		{"encrypted", locked, "n", nil},
		{"encrypted, under another name", locked, "m", errLocked},
		{"empty", nil, "n", errForeign},
		{"something else", []byte("apiVersion: v1\n"), "n", errForeign},
		{"something that begins alike", []byte(magic + " one\n"), "n", errForeign},
		{"version 0", []byte(magic + " 0 plain 0 00\n"), "n", errForeign},
		{"newer version", []byte(magic + " 2 who knows\n"), "n", errNewer},
		{"unknown cipher", bytes.Replace(open, []byte(plain), []byte("rot13"), 1), "n", errNewer},
		{"header cut", open[:30], "n", errPlain},
		{"header without its end", bytes.Replace(open, []byte("\n"), []byte(" "), 1), "n", errPlain},
		{"content cut", open[:len(open)-1], "n", errPlain},
		{"content longer", append(bytes.Clone(open), 0), "n", errPlain},
		{"a bit flipped", flipped, "n", errPlain},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := unpack(test.as, test.record, key)
			require.ErrorIs(t, err, test.want)
			if err == nil {
				assert.Equal(t, content, got)
			}
		})
	}
	for _, damaged := range [][]byte{open[:30], bytes.Replace(open, []byte("\n"), []byte(" "), 1), open[:len(open)-1],
		append(bytes.Clone(open), 0), flipped} {
		_, err := unpack("n", damaged, nil)
		require.ErrorIs(t, err, errDamaged)
	}
	for _, damaged := range [][]byte{locked[:30], bytes.Replace(locked, []byte("\n"), []byte(" "), 1),
		locked[:len(locked)-1], append(bytes.Clone(locked), 0)} {
		_, err := unpack("n", damaged, key)
		require.ErrorIs(t, err, errDamaged)
	}
	got, err := unpack("n", open, nil)
	require.NoError(t, err)
	assert.Equal(t, content, got)
	_, err = unpack("n", locked, nil)
	assert.ErrorIs(t, err, errLocked)
	_, err = unpack("n", locked, other)
	assert.ErrorIs(t, err, errLocked)
	_, err = newKey([]byte("short"))
	assert.ErrorContains(t, err, "the key has 5 bytes: must be 16, 24 or 32")
}

func FuzzUnpack(f *testing.F) {
	record, err := pack("n", []byte("content"), nil)
	require.NoError(f, err)
	f.Add(record)
	f.Add([]byte(magic + " 1 aes-gcm 3 00\nabc"))
	f.Add([]byte(magic + " 99999999999999999999 \n"))
	f.Fuzz(func(t *testing.T, record []byte) {
		content, err := unpack("n", record, nil)
		if err != nil {
			return
		}
		again, err := pack("n", content, nil)
		require.NoError(t, err)
		got, err := unpack("n", again, nil)
		require.NoError(t, err)
		assert.Equal(t, content, got)
	})
}
