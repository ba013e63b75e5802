//go:build !unix

package safefile

import "os"

func tryLock(*os.File) error { return nil }

func unlock(*os.File) {}

func openLock(path string) (*os.File, error) { return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) }
