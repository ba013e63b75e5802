//go:build !linux

package volume

import (
	"errors"
	"os"
	"syscall"

	"k8s.io/apimachinery/pkg/api/resource"
)

// bindOpened fails: there are no bind mounts here.
func bindOpened(*os.File, string, steps) (string, error) { return "", syscall.EPERM }

func bindWith(string, string, []string) error { return errors.ErrUnsupported }

func pathOf(f *os.File) (string, error) { return f.Name(), nil }

// Share fails: there are no shared mounts here.
func Share(string) error { return errors.ErrUnsupported }

func memoryMaySwap() bool { return false }

func mountTmpfs(string, int64, access) error { return errors.ErrUnsupported }

func resizeTmpfs(string, int64) error { return errors.ErrUnsupported }

func mountHugePages(string, int64, *resource.Quantity, access) error { return errors.ErrUnsupported }

func isMountPoint(string) (bool, error) { return false, nil }

func mountsBelow(string) ([]string, error) { return nil, nil }

func unmountOwn(string) error { return nil }

func unmountBelow(string) error { return nil }

func unmountAll(string) error { return nil }
