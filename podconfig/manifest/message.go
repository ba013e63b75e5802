package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/internal/text"
)

// brief returns a value in the form in which a message shows it.
func brief(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return field.OmitValueType{}
	case []any:
		return field.OmitValueType{}
	case string:
		return short(v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		return short(v.String())
	default:
		return v
	}
}

// Limits of error messages.
const (
	maxMessage  = 500 // bytes of one message
	maxMessages = 10  // messages in one error
)

// short shortens a text to maxMessage bytes.
func short(s string) string { return text.Clip(s, maxMessage) }

// joinShort joins errors into one error of bounded length.
func joinShort[E error](errs []E) error {
	parts := make([]string, 0, min(len(errs), maxMessages+1))
	for i, err := range errs {
		if i == maxMessages {
			parts = append(parts, fmt.Sprintf("and %d more", len(errs)-i))
			break
		}
		parts = append(parts, short(err.Error()))
	}
	return errors.New(strings.Join(parts, "; "))
}
