//go:build !linux

package csi

import "github.com/kubeletkit/kubeletkit/node/volume"

// mapDevice does nothing: there are no devices to hold.
func (p *Plugin) mapDevice(volume.PersistentRequest, string) error { return nil }
