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

// version is the version of the record format.
const version = 1

// maxRecord is the maximum size of a record in bytes. Larger records are neither written nor
// read. A manifest has up to 10 MiB, and objects of the API have up to 1.5 MiB (etcd's
// limit), which base64 makes larger.
const maxRecord = 16 << 20

// Reasons why a record cannot be used.
var (
	errForeign  = errors.New("is no checkpoint")
	errNewer    = errors.New("was written by a newer version")
	errDamaged  = errors.New("is damaged")
	errLocked   = errors.New("cannot be decrypted: the key is missing or differs")
	errTooLarge = fmt.Errorf("is larger than %d MiB", maxRecord>>20)
	// errPlain is for a record that somebody without the key can have written.
	errPlain = errors.New("is not encrypted although there is a key")
	// errUnread is an I/O error. The record may be usable later.
	errUnread = errors.New("cannot be read")
)

// A record is a header line, "kubeletkit-checkpoint <version> <cipher> <size> <sha256>",
// followed by the content. Size and checksum are those of the content in the file, after
// encryption.
const (
	magic      = "kubeletkit-checkpoint"
	headerLine = magic + " %d %s %d %x\n"

	// maxHeader is more than the length of a header up to its cipher, in bytes.
	maxHeader = 64

	plain  = "plain"
	sealed = "aes-gcm"
)

// pack returns the record of the content. With a key the content is encrypted, and only
// a record of the same name can be decrypted.
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

// unpack returns the content of a record. With a key, a record that is not encrypted is
// errPlain, also if it is damaged.
func unpack(name string, record []byte, key cipher.AEAD) ([]byte, error) {
	line, content, found := bytes.Cut(record, []byte("\n"))
	var (
		v, size int
		method  string
		sum     []byte
	)
	switch {
	case key != nil && isPlain(record):
		return nil, errPlain
	case !bytes.HasPrefix(line, []byte(magic+" ")):
		return nil, errForeign
	case !found:
		return nil, errDamaged
	}
	if _, err := fmt.Sscanf(string(line), magic+" %d", &v); err != nil || v < 1 {
		return nil, errForeign
	}
	if v > version {
		return nil, fmt.Errorf("%w (format %d, known is %d)", errNewer, v, version)
	}
	if _, err := fmt.Sscanf(string(line)+"\n", headerLine, &v, &method, &size, &sum); err != nil {
		return nil, errDamaged
	}
	if actual := sha256.Sum256(content); size != len(content) || !bytes.Equal(sum, actual[:]) {
		return nil, errDamaged
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

// isPlain reports whether a record that begins so is not encrypted.
func isPlain(start []byte) bool {
	return bytes.HasPrefix(start, fmt.Appendf(nil, "%s %d %s ", magic, version, plain))
}

// mayBeReadable reports whether a record of this version or of none that begins so may have a content
// that is not encrypted: it does not begin as an encrypted one.
func mayBeReadable(start []byte) bool {
	var v int
	if _, err := fmt.Sscanf(string(start), magic+" %d", &v); err == nil && v > version {
		return false // which is not known
	}
	return !bytes.HasPrefix(start, fmt.Appendf(nil, "%s %d %s ", magic, version, sealed))
}

// newKey returns the cipher of a key, nil for an empty key.
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
