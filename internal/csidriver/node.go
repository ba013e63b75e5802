package csidriver

import "github.com/container-storage-interface/spec/lib/go/csi"

// node is the service Node.
type node struct {
	csi.UnimplementedNodeServer
	d *Driver
}
