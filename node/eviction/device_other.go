//go:build !unix

package eviction

import "errors"

// device is not supported.
func device(string) (uint64, error) { return 0, errors.ErrUnsupported }
