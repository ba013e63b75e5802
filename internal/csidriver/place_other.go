//go:build !linux

package csidriver

import "errors"

func canMount() bool { return false }

func hasLoopDevices() bool { return false }

func bind(_, _ string, _ bool, _ string) error { return errors.ErrUnsupported }

func mountDevice(_, _, _, _ string) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }

func mountedFrom(_, _ string) bool { return false }

func loopOf(string) (string, error) { return "", nil }

func attachLoop(string) (string, error) { return "", errors.ErrUnsupported }

func detachLoop(string) error { return nil }

func growLoop(string) (string, error) { return "", nil }

func fileSystemUsage(string) (bytes, inodes usage, err error) {
	return usage{}, usage{}, errors.ErrUnsupported
}
