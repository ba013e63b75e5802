//go:build !unix

package filelock

import "os"

func tryLock(*os.File) error { return nil }

func unlock(*os.File) {}

func open(path string) (*os.File, error) { return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) }
