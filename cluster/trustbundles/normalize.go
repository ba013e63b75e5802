package trustbundles

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/pem"
	"slices"
)

// normalize returns the certificates of bundles, each once, in an order that differs between
// pods: nothing may depend on it (KEP-3257). It is the same each time, so that files do not
// change without need.
func normalize(pod string, bundles []string) []byte {
	type certificate struct {
		rank [sha256.Size]byte
		der  []byte
	}
	var all []certificate
	for _, bundle := range bundles {
		for rest := []byte(bundle); ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			all = append(all, certificate{sha256.Sum256(append([]byte(pod), block.Bytes...)), block.Bytes})
		}
	}
	slices.SortFunc(all, func(a, b certificate) int {
		return cmp.Or(bytes.Compare(a.rank[:], b.rank[:]), bytes.Compare(a.der, b.der))
	})
	all = slices.CompactFunc(all, func(a, b certificate) bool { return bytes.Equal(a.der, b.der) })
	out := []byte{}
	for _, c := range all {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.der})...)
	}
	return out
}
