package csi_test

import (
	"context"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/kubeletkit/kubeletkit/node/volume/csi"
)

// cluster is a [csi.Cluster] in memory.
type cluster struct {
	mu          sync.Mutex
	drivers     map[string]*storagev1.CSIDriver
	attachments map[string]*storagev1.VolumeAttachment
	secrets     map[string]*v1.Secret
	installed   map[string]csi.NodeDriver
	installs    int
	forgotten   []string
	// away is the error of all reads.
	away error
	// attached is the error of Attached, installing and uninstalling are called before those methods work.
	attached                 error
	installing, uninstalling func() error
	tokens                   []string
}

func newCluster() *cluster {
	return &cluster{drivers: map[string]*storagev1.CSIDriver{}, attachments: map[string]*storagev1.VolumeAttachment{},
		secrets: map[string]*v1.Secret{}, installed: map[string]csi.NodeDriver{}}
}

func (c *cluster) add(object *storagev1.CSIDriver, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	object.Name = name
	c.drivers[name] = object
}

// change replaces the object of a driver by a changed one.
func (c *cluster) change(name string, change func(spec *storagev1.CSIDriverSpec)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	object := c.drivers[name].DeepCopy()
	change(&object.Spec)
	c.drivers[name] = object
}

func (c *cluster) attach(name string, status storagev1.VolumeAttachmentStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	object := &storagev1.VolumeAttachment{Status: status}
	object.Name = name
	c.attachments[name] = object
}

func (c *cluster) addSecret(namespace, name string, data map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	object := &v1.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		object.Data[k] = []byte(v)
	}
	c.secrets[namespace+"/"+name] = object
}

func read[T any](c *cluster, objects map[string]T, name string) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	object, ok := objects[name]
	switch {
	case c.away != nil:
		return object, c.away
	case !ok:
		return object, notFound(name)
	}
	return object, nil
}

func (c *cluster) setAway(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = err
}

func (c *cluster) Driver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return read(c, c.drivers, name)
}

func (c *cluster) Attachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return read(c, c.attachments, name)
}

func (c *cluster) Forget(attachment string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten = append(c.forgotten, attachment)
}

func (c *cluster) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return read(c, c.secrets, namespace+"/"+name)
}

func (c *cluster) Token(_ context.Context, pod *v1.Pod, audience string,
	_ *int64) (authenticationv1.TokenRequestStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens = append(c.tokens, pod.Name+" "+audience)
	return authenticationv1.TokenRequestStatus{Token: secret + audience}, c.away
}

func (c *cluster) Attached(context.Context, v1.UniqueVolumeName, *v1.Pod) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attached
}

func (c *cluster) Install(_ context.Context, driver csi.NodeDriver) error {
	if c.installing != nil {
		if err := c.installing(); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.installed[driver.Name] = driver
	c.installs++
	return nil
}

func (c *cluster) Uninstall(_ context.Context, name string) error {
	if c.uninstalling != nil {
		if err := c.uninstalling(); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.installed, name)
	return nil
}

func (c *cluster) driver(name string) (csi.NodeDriver, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.installed[name]
	return d, ok
}
