package mounting_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/mounting"
)

type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exit) ExitCode() int { return int(e) }

func TestFormatAndMount(t *testing.T) {
	device := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(device, []byte("content"), 0o600))
	const blkid, mount = "blkid -p -s TYPE -s PTTYPE -o export DISK", "mount -t ext4 -o noatime,defaults DISK /mnt"
	type result struct {
		output string
		err    error
	}
	none := result{"", exit(2)}
	for name, test := range map[string]struct {
		fsType   string
		readOnly bool
		results  map[string]result
		calls    []string
		err      string
	}{
		"empty disk": {"ext4", false, map[string]result{"blkid": none}, []string{blkid, "mkfs.ext4 -F -m0 DISK", mount}, ""},
		"default":    {"", false, map[string]result{"blkid": none}, []string{blkid, "mkfs.ext4 -F -m0 DISK", mount}, ""},
		"xfs": {"xfs", false, map[string]result{"blkid": none},
			[]string{blkid, "mkfs.xfs -f DISK", "mount -t xfs -o noatime,defaults DISK /mnt"}, ""},
		"btrfs": {"btrfs", false, map[string]result{"blkid": none},
			[]string{blkid, "mkfs.btrfs DISK", "mount -t btrfs -o noatime,defaults DISK /mnt"}, ""},
		"empty partition": {"ext4", false, map[string]result{"blkid": {"DEVNAME=/dev/sda1\n", nil}},
			[]string{blkid, "mkfs.ext4 -F -m0 DISK", mount}, ""},
		"empty disk, read-only": {"ext4", true, map[string]result{"blkid": none}, []string{blkid},
			"cannot mount unformatted disk DISK as we are manipulating it in read-only mode"},
		"file system": {"ext4", false, map[string]result{"blkid": {"DEVNAME=/dev/sda\nTYPE=ext4\n", nil}},
			[]string{blkid, "fsck -a DISK", mount}, ""},
		"file system, read-only": {"ext4", true, map[string]result{"blkid": {"TYPE=ext4\n", nil}},
			[]string{blkid, "mount -t ext4 -o noatime,ro,defaults DISK /mnt"}, ""},
		"repaired": {"ext4", false, map[string]result{"blkid": {"TYPE=ext4\n", nil}, "fsck": {"repaired", exit(1)}},
			[]string{blkid, "fsck -a DISK", mount}, ""},
		"broken": {"ext4", false, map[string]result{"blkid": {"TYPE=ext4\n", nil}, "fsck": {"run fsck MANUALLY", exit(4)}},
			[]string{blkid, "fsck -a DISK"},
			"'fsck' found errors on device DISK but could not correct them: run fsck MANUALLY"},
		"no fsck": {"ext4", false, map[string]result{"blkid": {"TYPE=ext4\n", nil}, "fsck": {"", exec.ErrNotFound}},
			[]string{blkid, "fsck -a DISK", mount}, ""},
		"other file system": {"ext4", false, map[string]result{"blkid": {"TYPE=xfs\n", nil}, "mount": {"bad superblock", exit(32)}},
			[]string{blkid, "fsck -a DISK", mount}, "The disk has xfs, and ext4 is requested"},
		"partitions": {"ext4", false, map[string]result{"blkid": {"PTTYPE=gpt\n", nil}, "mount": {"bad superblock", exit(32)}},
			[]string{blkid, "fsck -a DISK", mount}, "The disk has unknown data, probably partitions"},
		"unreadable": {"ext4", false, map[string]result{"blkid": {"error: DISK: Input/output error\n", exit(2)}}, []string{blkid},
			"failed to get disk format of disk DISK: exit status 2"},
		"ambivalent": {"ext4", false, map[string]result{"blkid": {"", exit(8)}}, []string{blkid},
			"failed to get disk format of disk DISK: exit status 8"},
		"invalid output": {"ext4", false, map[string]result{"blkid": {"what\n", nil}}, []string{blkid},
			"blkid returns invalid output: what"},
		"no blkid": {"ext4", false, map[string]result{"blkid": {"", exec.ErrNotFound}}, []string{blkid},
			"install the package util-linux"},
		"no mkfs": {"xfs", false, map[string]result{"blkid": none, "mkfs.xfs": {"", exec.ErrNotFound}},
			[]string{blkid, "mkfs.xfs -f DISK"}, "install the package xfsprogs"},
		"mkfs fails": {"ext4", false, map[string]result{"blkid": none, "mkfs.ext4": {"no space", exit(1)}},
			[]string{blkid, "mkfs.ext4 -F -m0 DISK"}, `format of disk "DISK" failed: type:("ext4") target:("/mnt") ` +
				`options:(["noatime" "defaults"]) errcode:(exit status 1) output:(no space)`},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			run := mounting.Run(func(_ context.Context, program string, args ...string) ([]byte, error) {
				calls = append(calls, strings.ReplaceAll(program+" "+strings.Join(args, " "), device, "DISK"))
				r := test.results[program]
				return []byte(r.output), r.err
			})
			options := []string{"noatime"}
			if test.readOnly {
				options = append(options, "ro")
			}
			err := run.FormatAndMount(t.Context(), device, "/mnt", test.fsType, options)
			assert.Equal(t, test.calls, calls)
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.Contains(t, strings.ReplaceAll(err.Error(), device, "DISK"), test.err)
		})
	}
}

// A disk that is not there is not formatted, whatever blkid says.
func TestMissingDisk(t *testing.T) {
	run := mounting.Run(func(_ context.Context, program string, _ ...string) ([]byte, error) {
		assert.Equal(t, "blkid", program)
		return nil, exit(2)
	})
	err := run.FormatAndMount(t.Context(), filepath.Join(t.TempDir(), "none"), "/mnt", "ext4", nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestGrow(t *testing.T) {
	for found, want := range map[string]string{"ext4": "resize2fs /dev/sda", "xfs": "xfs_growfs -d /mnt",
		"btrfs": "btrfs filesystem resize max /mnt", "ntfs": ""} {
		for _, fails := range []bool{false, true} {
			var calls []string
			run := mounting.Run(func(_ context.Context, program string, args ...string) ([]byte, error) {
				if program == "blkid" {
					return []byte("TYPE=" + found + "\n"), nil
				}
				calls = append(calls, program+" "+strings.Join(args, " "))
				if fails {
					return []byte("no space"), exit(1)
				}
				return nil, nil
			})
			err := run.Grow(t.Context(), "/dev/sda", "/mnt")
			switch {
			case want == "":
				require.ErrorContains(t, err, "resize of format ntfs is not supported for device /dev/sda mounted at /mnt")
				continue
			case fails:
				require.ErrorContains(t, err, "resize of device /dev/sda failed: exit status 1. ")
			default:
				require.NoError(t, err)
			}
			assert.Equal(t, []string{want}, calls)
		}
	}
}
