//go:build !linux

package stats

import "errors"

func statfs(string) (fsSize, error) { return fsSize{}, errors.ErrUnsupported }
