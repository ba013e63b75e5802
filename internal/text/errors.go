package text

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of the messages of errors about what comes from elsewhere.
const (
	// MaxMessage is the maximum length of one message in bytes.
	MaxMessage = 500
	// maxMessages is the maximum number of messages in one error.
	maxMessages = 10
)

// JoinErrors joins errors into one error of bounded length: it omits some if there are more than 10, and shortens each.
func JoinErrors[E error](errs []E) error {
	parts := make([]string, 0, min(len(errs), maxMessages+1))
	for i, err := range errs {
		if i == maxMessages {
			parts = append(parts, fmt.Sprintf("and %d more", len(errs)-i))
			break
		}
		parts = append(parts, Clip(err.Error(), MaxMessage))
	}
	return errors.New(strings.Join(parts, "; "))
}
