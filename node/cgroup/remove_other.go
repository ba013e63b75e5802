//go:build !linux

package cgroup

import "k8s.io/apimachinery/pkg/types"

// There are no cgroups.

func list(string, []string, Driver) ([]types.UID, error) { return nil, nil }

func remove(string, []string, Driver, types.UID) error { return nil }

func removeAbove(string, []string, Driver) error { return nil }

func removeGone(string, []string, Driver, func(types.UID) bool) (map[types.UID]error, error) {
	return nil, nil
}
