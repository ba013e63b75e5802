package checkpoint

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// version of the format that is written and read.
const version = 1

// maxRecord is the greatest size of a record that is read, in bytes. The API allows
// an object 1.5 MiB (etcd's limit), which base64 makes larger.
const maxRecord = 4 << 20

// What is wrong with a record that cannot be used.
var (
	errForeign = errors.New("is no checkpoint")
	errNewer   = errors.New("was written by a newer version")
	errTorn    = errors.New("is damaged")
	errLocked  = errors.New("cannot be decrypted: the key is missing or another one")
	// errUnread is no fault of the record.
	errUnread = errors.New("cannot be read")
)

// A record is a line, "kubeletkit-checkpoint <version> <cipher> <size> <sha256>",
// and the content, of which size and checksum are given as it stands in the file.
const (
	magic      = "kubeletkit-checkpoint"
	headerLine = magic + " %d %s %d %x\n"

	plain  = "plain"
	sealed = "aes-gcm"
)

// pack makes a record of the content. With a key it is encrypted, and can be opened
// under the same name only.
func pack(name string, content []byte, key cipher.AEAD) ([]byte, error) {
	method := plain
	if key != nil {
		method = sealed
		nonce := make([]byte, key.NonceSize(), key.NonceSize()+len(content)+key.Overhead())
		if _, err := rand.Read(nonce); err != nil {
			return nil, err
		}
		content = key.Seal(nonce, nonce, content, []byte(name))
	}
	return append(fmt.Appendf(nil, headerLine, version, method, len(content), sha256.Sum256(content)), content...), nil
}

// isSealed reports whether a record is encrypted.
func isSealed(record []byte) bool {
	line, _, _ := bytes.Cut(record, []byte("\n"))
	return bytes.Contains(line, []byte(" "+sealed+" "))
}

// unpack returns the content of a record.
func unpack(name string, record []byte, key cipher.AEAD) ([]byte, error) {
	line, content, found := bytes.Cut(record, []byte("\n"))
	var (
		v, size int
		method  string
		sum     []byte
	)
	switch {
	case !bytes.HasPrefix(line, []byte(magic+" ")):
		return nil, errForeign
	case !found:
		return nil, errTorn
	}
	if _, err := fmt.Sscanf(string(line), magic+" %d", &v); err != nil || v < 1 {
		return nil, errForeign
	}
	if v > version {
		return nil, fmt.Errorf("%w (format %d, known is %d)", errNewer, v, version)
	}
	if _, err := fmt.Sscanf(string(line)+"\n", headerLine, &v, &method, &size, &sum); err != nil {
		return nil, errTorn
	}
	if actual := sha256.Sum256(content); size != len(content) || !bytes.Equal(sum, actual[:]) {
		return nil, errTorn
	}
	switch method {
	case plain:
		return content, nil
	case sealed:
		if key == nil || len(content) < key.NonceSize() {
			return nil, errLocked
		}
		opened, err := key.Open(nil, content[:key.NonceSize()], content[key.NonceSize():], []byte(name))
		if err != nil {
			return nil, errLocked
		}
		return opened, nil
	default:
		return nil, fmt.Errorf("%w (cipher %q)", errNewer, method)
	}
}

// newKey makes an AEAD of the bytes of a key; without any it returns nil.
func newKey(key []byte) (cipher.AEAD, error) {
	if len(key) == 0 {
		return nil, nil
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("the key has %d bytes: must be 16, 24 or 32", len(key))
	}
	return cipher.NewGCM(block)
}
