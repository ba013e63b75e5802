//go:build !linux

package loop

import "errors"

// Of returns nothing: there are no loop devices.
func Of(string) ([]string, error) { return nil, nil }

// Attach returns [errors.ErrUnsupported].
func Attach(string) (string, error) { return "", errors.ErrUnsupported }

// Detach returns [errors.ErrUnsupported].
func Detach(string) error { return errors.ErrUnsupported }
