//go:build !linux

package cgroup

import "errors"

// kernelTree returns the cgroups of a machine that has none.
func kernelTree(string) tree { return noTree{} }

var errNoCgroups = errors.New("only Linux has cgroups")

type noTree struct{}

func (noTree) usable(Driver) error                  { return errNoCgroups }
func (noTree) missing() []string                    { return nil }
func (noTree) unified() bool                        { return false }
func (noTree) exists(string) bool                   { return false }
func (noTree) make(Driver, string, Resources) error { return errNoCgroups }
func (noTree) set(Driver, string, Resources) error  { return errNoCgroups }
func (noTree) read(string, Resources) (Resources, error) {
	return Resources{}, errNoCgroups
}
func (noTree) memoryUsage(string) (int64, error) { return 0, errNoCgroups }
func (noTree) pageSizes() []string               { return nil }
func (noTree) cpus() string                      { return "" }
func (noTree) moveSelf(string) error             { return errNoCgroups }
func (noTree) moveRoot(string) error             { return errNoCgroups }
