//go:build !linux

package csi_test

import (
	"io/fs"
	"testing"
)

func bindFile(t *testing.T, _, _ string) { t.Fatal("only Linux can mount a file") }

func groupOf(fs.FileInfo) int64 { return -1 }
