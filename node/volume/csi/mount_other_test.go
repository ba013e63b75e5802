//go:build !linux

package csi_test

import "testing"

func bindFile(t *testing.T, _, _ string) { t.Fatal("only Linux can mount a file") }
