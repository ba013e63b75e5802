package csidriver

import "github.com/container-storage-interface/spec/lib/go/csi"

// controller is the service Controller.
type controller struct {
	csi.UnimplementedControllerServer
	d *Driver
}
