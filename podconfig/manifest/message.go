package manifest

import (
	"encoding/json"

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

// short shortens a text to the length of one message.
func short(s string) string { return text.Clip(s, text.MaxMessage) }

// joinShort joins errors into one error of bounded length.
func joinShort[E error](errs []E) error { return text.JoinErrors(errs) }
