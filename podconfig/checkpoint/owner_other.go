//go:build !unix

package checkpoint

import "io/fs"

func checkOwner(fs.FileInfo) error { return nil }
