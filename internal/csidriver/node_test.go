package csidriver

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

const (
	multiWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	writer      = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
)

// nodeOnly are capabilities of a driver without an attacher.
var nodeOnly = Settings{ControllerCapabilities: []csi.ControllerServiceCapability_RPC_Type{}}

// eachPlace runs a test with links, and with mounts if this process may mount.
func eachPlace(t *testing.T, test func(t *testing.T, opts Options)) {
	t.Run("links", func(t *testing.T) { test(t, Options{Settings: nodeOnly, Links: true}) })
	t.Run("mounts", func(t *testing.T) {
		if os.Getuid() != 0 || !canMount() {
			t.Skip("needs root on Linux")
		}
		test(t, Options{Settings: nodeOnly})
	})
}

func TestDirectories(t *testing.T) {
	eachPlace(t, func(t *testing.T, opts Options) {
		d, _ := Start(t, opts)
		require.NoError(t, d.AddVolume("v", 1<<20))
		c := connect(t, d)
		require.NoError(t, os.Mkdir(c.staging(), 0o755))
		for range 2 {
			require.NoError(t, c.stage(mounted(multiWriter)))
		}
		for range 2 {
			require.NoError(t, c.publish("one", mounted(multiWriter), false))
		}
		require.NoError(t, c.publish("two", mounted(multiWriter), true))
		c.code(codes.AlreadyExists, c.publish("two", mounted(multiWriter), false))
		require.NoError(t, os.WriteFile(filepath.Join(c.target("one"), "file"), []byte("data"), 0o600))
		for _, dir := range []string{c.target("two"), c.staging(), d.Data("v")} {
			data, err := os.ReadFile(filepath.Join(dir, "file"))
			assert.NoError(t, err)
			assert.Equal(t, "data", string(data))
		}
		if d.Mounts() {
			assert.Error(t, os.WriteFile(filepath.Join(c.target("two"), "file"), nil, 0o600))
		}
		stats, err := c.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "v",
			VolumePath: c.target("one")})
		require.NoError(t, err)
		assert.EqualValues(t, 4, stats.Usage[0].Used)
		assert.EqualValues(t, 1<<20-4, stats.Usage[0].Available)
		for range 2 {
			require.NoError(t, c.unpublish("one"))
			require.NoError(t, c.unpublish("two"))
		}
		for range 2 {
			require.NoError(t, c.unstage())
		}
		left, err := os.ReadDir(c.dir)
		require.NoError(t, err)
		require.Len(t, left, 1) // the staging path
		left, err = os.ReadDir(c.staging())
		require.NoError(t, err)
		assert.Empty(t, left)
		assert.FileExists(t, filepath.Join(d.Data("v"), "file"))
		assert.Empty(t, d.Violations())
	})
}

func TestBlock(t *testing.T) {
	eachPlace(t, func(t *testing.T, opts Options) {
		d, _ := Start(t, opts)
		require.NoError(t, d.AddVolume("v", 1<<20))
		c := connect(t, d)
		require.NoError(t, os.Mkdir(c.staging(), 0o755))
		for range 2 {
			require.NoError(t, c.stage(block(singleWriter)))
			require.NoError(t, c.publish("one", block(singleWriter), false))
		}
		info, err := os.Lstat(c.target("one"))
		require.NoError(t, err)
		if d.devices() {
			assert.NotZero(t, info.Mode()&os.ModeDevice)
		} else {
			assert.True(t, info.Mode().IsRegular())
		}
		size := func() int64 {
			f, err := os.Open(c.target("one"))
			require.NoError(t, err)
			defer f.Close()
			n, err := f.Seek(0, 2)
			require.NoError(t, err)
			return n
		}
		assert.EqualValues(t, 1<<20, size())
		expanded, err := c.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "v",
			VolumePath: c.target("one"), CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 20}})
		require.NoError(t, err)
		assert.EqualValues(t, 2<<20, expanded.CapacityBytes)
		assert.EqualValues(t, 2<<20, size())
		require.NoError(t, c.unpublish("one"))
		require.NoError(t, c.unstage())
		assert.NoFileExists(t, c.target("one"))
		device, err := loopOf(d.Image("v"))
		assert.NoError(t, err)
		assert.Empty(t, device)
		assert.Empty(t, d.Violations())
	})
}

func TestFileSystem(t *testing.T) {
	if os.Getuid() != 0 || !canMount() || !hasLoopDevices() {
		t.Skip("needs root on Linux, with loop devices")
	}
	dir := t.TempDir()
	opts := Options{Settings: nodeOnly, FileSystem: "ext4", Dir: dir}
	d, stop := Start(t, opts)
	require.NoError(t, d.AddVolume("v", 16<<20))
	c := connect(t, d)
	require.NoError(t, os.Mkdir(c.staging(), 0o755))
	require.NoError(t, c.stage(mounted(writer)))
	require.NoError(t, c.publish("one", mounted(writer), false))
	require.NoError(t, os.WriteFile(filepath.Join(c.target("one"), "file"), []byte("data"), 0o600))
	total := func(c *client) int64 {
		stats, err := c.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "v",
			VolumePath: c.target("one")})
		require.NoError(t, err)
		return stats.Usage[0].Total
	}
	require.NoError(t, c.publish("two", mounted(writer), false))
	require.NoError(t, c.unpublish("two"))
	before := total(c)
	assert.Less(t, before, int64(16<<20))
	_, err := c.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "v",
		VolumePath: c.target("one"), CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20}})
	if mayResize(t) {
		require.NoError(t, err)
		assert.Greater(t, total(c), 2*before)
	} else {
		c.code(codes.Internal, err)
	}

	// The node and the driver are restarted.
	stop()
	require.NoError(t, d.LoseMounts())
	d, _ = Start(t, opts)
	again := connect(t, d)
	again.dir = c.dir
	again.code(codes.FailedPrecondition, again.publish("one", mounted(writer), false))
	require.Len(t, d.Violations(), 1)
	require.NoError(t, again.stage(mounted(writer)))
	require.NoError(t, again.publish("one", mounted(writer), false))
	data, err := os.ReadFile(filepath.Join(c.target("one"), "file"))
	require.NoError(t, err)
	assert.Equal(t, "data", string(data))
	require.NoError(t, again.unpublish("one"))
	require.NoError(t, again.unstage())
}

// mayResize reports whether this process has CAP_SYS_RESOURCE, without which ext4 is not resized while it is mounted.
func mayResize(t *testing.T) bool {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	match := regexp.MustCompile(`CapEff:\s*([0-9a-f]+)`).FindSubmatch(status)
	require.NotNil(t, match)
	capabilities, err := strconv.ParseUint(string(match[1]), 16, 64)
	require.NoError(t, err)
	const sysResource = 24
	return capabilities&(1<<sysResource) != 0
}

// A volume without staging, and one that lives as long as its publication.
func TestUnstaged(t *testing.T) {
	eachPlace(t, func(t *testing.T, opts Options) {
		opts.NodeCapabilities = []csi.NodeServiceCapability_RPC_Type{}
		d, _ := Start(t, opts)
		c := connect(t, d)
		c.code(codes.NotFound, c.publish("one", mounted(writer), false))
		request := &csi.NodePublishVolumeRequest{VolumeId: "v", TargetPath: c.target("one"),
			VolumeCapability: mounted(writer), VolumeContext: map[string]string{ephemeral: "true"}}
		for range 2 {
			_, err := c.NodePublishVolume(t.Context(), request)
			require.NoError(t, err)
		}
		info, err := os.Stat(c.target("one"))
		require.NoError(t, err)
		assert.True(t, info.IsDir())
		for range 2 {
			require.NoError(t, c.unpublish("one"))
		}
		assert.NoDirExists(t, d.Data("v"))
		assert.Empty(t, d.Violations())
		c.code(codes.Unimplemented, c.unstage())
		assert.Equal(t, []string{"NodeUnstageVolume: volume v: the node has no capability STAGE_UNSTAGE_VOLUME"},
			d.Violations())
	})
}

// The group of a mount, and its flags.
func TestGroupAndFlags(t *testing.T) {
	eachPlace(t, func(t *testing.T, opts Options) {
		d, _ := Start(t, opts)
		require.NoError(t, d.AddVolume("v", 1<<20))
		c := connect(t, d)
		require.NoError(t, os.Mkdir(c.staging(), 0o755))
		capability := mounted(writer)
		capability.GetMount().VolumeMountGroup = strconv.Itoa(os.Getgid() + 1)
		capability.GetMount().MountFlags = []string{"ro", "noexec"}
		require.NoError(t, c.stage(capability))
		require.NoError(t, c.publish("one", capability, false))
		if d.Mounts() {
			info, err := os.Stat(c.target("one"))
			require.NoError(t, err)
			assert.NotZero(t, info.Mode()&os.ModeSetgid)
			assert.Error(t, os.WriteFile(filepath.Join(c.target("one"), "file"), nil, 0o600))
		}
		capability.GetMount().VolumeMountGroup = "staff"
		c.code(codes.AlreadyExists, c.stage(capability))
		assert.Empty(t, d.Violations())
		capability.GetMount().MountFlags = []string{"ro", `context="u:r:t:s0:c1,c2"`, "noexec"}
		assert.Equal(t, access{Mode: writer, Flags: "ro,noexec", Context: "u:r:t:s0:c1,c2", Group: "staff"},
			accessOf(capability))
		c.code(codes.FailedPrecondition, c.publish("two", capability, false))
		assert.Equal(t, []string{`NodePublishVolume: volume v: it is staged with the SELinux label "", not with ` +
			`"u:r:t:s0:c1,c2"`}, d.Violations())
		d.Update(func(s *Settings) { s.NodeCapabilities = []csi.NodeServiceCapability_RPC_Type{} })
		c.code(codes.InvalidArgument, c.publish("one", capability, false))
		assert.Len(t, d.Violations(), 2)
	})
}
