package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// identity is the service Identity.
type identity struct {
	csi.UnimplementedIdentityServer
	d *Driver
}

func (i identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.d.opts.Name, VendorVersion: i.d.opts.Version}, nil
}

func (i identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(!i.d.Settings().NotReady)}, nil
}

func (i identity) GetPluginCapabilities(context.Context,
	*csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	settings, response := i.d.Settings(), &csi.GetPluginCapabilitiesResponse{}
	service := func(t csi.PluginCapability_Service_Type) {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}})
	}
	if len(settings.ControllerCapabilities) > 0 {
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE)
	}
	if len(settings.Topology) > 0 {
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	if settings.controller(csi.ControllerServiceCapability_RPC_EXPAND_VOLUME) ||
		settings.node(csi.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
				Type: csi.PluginCapability_VolumeExpansion_ONLINE}}})
	}
	return response, nil
}
