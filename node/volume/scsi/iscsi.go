package scsi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/node/volume"
)

// ISCSI is kubelet's name of the plugin for iSCSI, which is part of paths on disk.
const ISCSI = "kubernetes.io/iscsi"

// defaultPort is the port of a portal that names none.
const defaultPort = "3260"

// attempts is how often the portals that fail are tried if another one answers (kubelet: minAttachAttempts).
const attempts = 2

// recordFile is the file in the directory of a disk with its record.
const recordFile = "iscsi.json"

// record is the content of the file iscsi.json, in the order in which kubelet has it.
type record struct {
	VolName string
	// Portals has the target portal first.
	Portals []string
	Iqn     string
	Lun     string
	// InitIface is the iface of the volume, Iface that of its sessions: a copy of it if the volume has a name for the
	// initiator.
	InitIface     string
	Iface         string
	InitiatorName string
}

func recordOf(pv *v1.PersistentVolume) record {
	source := pv.Spec.ISCSI
	r := record{VolName: pv.Name, Iqn: source.IQN, Lun: strconv.Itoa(int(source.Lun)), InitIface: source.ISCSIInterface,
		InitiatorName: ptr.Deref(source.InitiatorName, "")}
	for _, portal := range append([]string{source.TargetPortal}, source.Portals...) {
		if !strings.Contains(portal, ":") {
			portal += ":" + defaultPort
		}
		if !slices.Contains(r.Portals, portal) {
			r.Portals = append(r.Portals, portal)
		}
	}
	if r.InitIface == "" {
		r.InitIface = "default"
	}
	r.Iface = r.InitIface
	if r.InitiatorName != "" {
		r.Iface = r.ownIface()
	}
	return r
}

// ownIface is the name of the iface that is made for the volume.
func (r record) ownIface() string { return r.Portals[0] + ":" + r.VolName }

// key is the name of the directory of the disk (kubelet: makePDNameInternal).
func (r record) key() string { return r.Portals[0] + "-" + r.Iqn + "-lun-" + r.Lun }

// parseStage returns what the path of the directory of a disk says about the disk.
func parseStage(stage string) (record, error) {
	key := filepath.Base(stage)
	for _, kind := range []string{"-iqn.", "-eui.", "-naa."} {
		portal, _, ok := strings.Cut(key, kind)
		if lun := strings.LastIndex(key, "-lun-"); ok && lun > len(portal) {
			return record{Portals: []string{portal}, Iqn: key[len(portal)+1 : lun], Lun: key[lun+len("-lun-"):],
				Iface: strings.TrimPrefix(filepath.Base(filepath.Dir(stage)), ifacePrefix)}, nil
		}
	}
	return record{}, fmt.Errorf("%s is not the directory of an iSCSI disk", stage)
}

// samePortal compares portals as volumes and files of the kernel have them.
func samePortal(a, b string) bool {
	return a == b || address(a).IsValid() && address(a) == address(b)
}

func address(portal string) netip.AddrPort {
	if ip, err := netip.ParseAddr(strings.Trim(portal, "[]")); err == nil {
		portal = netip.AddrPortFrom(ip, 3260).String()
	}
	addr, _ := netip.ParseAddrPort(portal)
	return addr
}

// NewISCSI returns the plugin for volumes of the type iscsi. rootDir is the root directory of the agent, an absolute
// path, below which are its pods and, in plugins, what is mounted for the node. It does no I/O.
func NewISCSI(rootDir string, opts Options) (*Plugin, error) {
	p, err := newPlugin(ISCSI, rootDir, opts)
	if err != nil {
		return nil, err
	}
	p.transport = &iscsi{node: p.node}
	return p, nil
}

// iscsi is the transport by the program iscsiadm.
type iscsi struct {
	node
	// targets has a lock for each target, by its name: sessions are shared.
	targets flow.Locks
}

func (*iscsi) inline(pod *v1.Pod, v *v1.Volume) *v1.PersistentVolume {
	if v.ISCSI == nil {
		return nil
	}
	s := v.ISCSI
	source := &v1.ISCSIPersistentVolumeSource{TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, FSType: s.FSType,
		ISCSIInterface: s.ISCSIInterface, ReadOnly: s.ReadOnly, Portals: s.Portals, InitiatorName: s.InitiatorName,
		DiscoveryCHAPAuth: s.DiscoveryCHAPAuth, SessionCHAPAuth: s.SessionCHAPAuth}
	if s.SecretRef != nil {
		source.SecretRef = &v1.SecretReference{Namespace: pod.Namespace, Name: s.SecretRef.Name}
	}
	return inlineOf(v, v1.PersistentVolumeSource{ISCSI: source})
}

func (*iscsi) diskOf(pv *v1.PersistentVolume) *disk {
	if pv.Spec.ISCSI == nil {
		return nil
	}
	r := recordOf(pv)
	return &disk{key: r.key(), parent: ifacePrefix + r.Iface, fsType: pv.Spec.ISCSI.FSType,
		readOnly: pv.Spec.ISCSI.ReadOnly}
}

// record returns the record of a disk, and writes it if there is none.
func (*iscsi) record(pv *v1.PersistentVolume, stage string) (record, error) {
	if r, err := readRecord(stage); err != nil || r.Iqn != "" {
		return r, err
	}
	r := recordOf(pv)
	data, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	return r, safefile.Write(filepath.Join(stage, recordFile), append(data, '\n'))
}

// readRecord reads the record of a disk. One that is missing or cannot be used is empty.
func readRecord(stage string) (r record, err error) {
	data, err := safefile.ReadFile(filepath.Join(stage, recordFile), maxRecord)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if json.Unmarshal(data, &r) != nil || len(r.Portals) == 0 || r.Iqn == "" || r.Lun == "" {
		return record{}, nil
	}
	return r, nil
}

func (t *iscsi) attach(ctx context.Context, req volume.PersistentRequest, stage string) (string, error) {
	r, err := t.record(req.Volume, stage)
	if err != nil {
		return "", err
	}
	unlock, err := t.targets.Lock(ctx, r.Iqn)
	if err != nil {
		return "", fmt.Errorf("another volume of the target is set up: %w", err)
	}
	defer unlock()
	paths, scanned := map[string]string{}, false
	var last error
	for range attempts {
		for _, portal := range r.Portals {
			if paths[portal] != "" {
				continue
			}
			name, isNew, err := t.device(ctx, req, r, portal)
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			if err != nil {
				last = fmt.Errorf("portal %s: %w", portal, err)
				continue
			}
			paths[portal], scanned = name, scanned || isNew
		}
		if len(paths) == 0 {
			return "", fmt.Errorf("failed to get any path for iscsi disk, last err seen:\n%w", last)
		}
		if len(paths) == len(r.Portals) {
			break
		}
	}
	if len(paths) < len(r.Portals) {
		t.opts.Logger.Error(last, "A path of an iSCSI disk is missing", "disk", r.key(), "paths", len(paths))
	}
	names := make([]string, 0, len(paths))
	for _, portal := range r.Portals {
		if paths[portal] != "" {
			names = append(names, paths[portal])
		}
	}
	return t.joined(ctx, names, scanned && len(r.Portals) > 1)
}

// device returns the name of the device of the disk by a portal, and whether it was not there before.
func (t *iscsi) device(ctx context.Context, req volume.PersistentRequest, r record,
	portal string) (name string, isNew bool, err error) {
	s, err := t.session(r, portal)
	if err == nil && s == nil {
		if err = t.login(ctx, req, r, portal); err == nil {
			s, err = t.session(r, portal)
		}
	}
	switch {
	case err != nil:
		return "", false, err
	case s == nil:
		return "", false, errors.New("iscsiadm has logged in, but there is no session")
	case s.state != loggedIn: // a scan would hang
		return "", false, fmt.Errorf("the target does not answer: the session is in the state %s", s.state)
	case s.disks[r.Lun] != "":
		return s.disks[r.Lun], false, nil
	}
	if err := t.write(ctx, "0 0 "+r.Lun, "sys/class/scsi_host", s.host, "scan"); err != nil {
		return "", false, fmt.Errorf("scanning LUN %s: %w", r.Lun, err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, deviceTimeout,
		fmt.Errorf("no device has appeared for LUN %s after %v", r.Lun, deviceTimeout))
	defer cancel()
	for {
		if s, err = t.session(r, portal); err == nil && s != nil && s.disks[r.Lun] != "" {
			return s.disks[r.Lun], true, nil
		}
		if !flow.Sleep(limited, interval) {
			return "", false, errors.Join(context.Cause(limited), err)
		}
	}
}

func (t *iscsi) devices(stage string) (names []string) {
	r, err := parseStage(stage)
	if err != nil {
		return nil
	}
	sessions, _ := t.sessions(r.Iqn)
	for _, s := range sessions {
		if name := s.disks[r.Lun]; name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (t *iscsi) detach(ctx context.Context, stage string) error {
	r, err := readRecord(stage)
	if err == nil && r.Iqn == "" {
		r, err = parseStage(stage)
	}
	if err != nil {
		return err
	}
	unlock, err := t.targets.Lock(ctx, r.Iqn)
	if err != nil {
		return fmt.Errorf("another volume of the target is set up: %w", err)
	}
	defer unlock()
	sessions, err := t.sessions(r.Iqn)
	if err != nil {
		return err
	}
	var names []string
	open, ended := map[string]bool{}, []string{} // portals with a session, and those whose session nothing else uses
	for _, portal := range r.Portals {
		kept := false
		for _, s := range sessions {
			if !s.has(portal) {
				continue
			}
			busy, err := t.busy(s, r.Lun)
			if err != nil {
				return err
			}
			open[portal] = open[portal] || s.iface == r.Iface
			if s.iface == r.Iface && !busy { // its end removes its devices, also if the target does not answer
				continue
			}
			kept = kept || s.iface == r.Iface
			if name := s.disks[r.Lun]; name != "" {
				names = append(names, name)
			}
		}
		if !kept {
			ended = append(ended, portal)
		}
	}
	t.removeMaps(ctx, t.devices(stage))
	t.removeDevices(ctx, names)
	for _, portal := range ended {
		if err := t.logout(ctx, r, portal); err != nil && open[portal] {
			return err
		}
	}
	if len(ended) == len(r.Portals) && r.InitiatorName != "" && r.Iface == r.ownIface() {
		_, err = t.iscsiadm(ctx, "", "-m", "iface", "-I", r.Iface, "-o", "delete")
		err = ignoring(err, exitNothingFound, exitSessionNotFound, exitInvalid)
	}
	if errors.Is(err, exec.ErrNotFound) { // there was no session
		return nil
	}
	return err
}

// busy reports whether another disk of a session is used: by a volume, or by the host.
func (t *iscsi) busy(s session, lun string) (bool, error) {
	for other, name := range s.disks {
		if other == lun {
			continue
		}
		mounted, err := t.mountedByHost(name)
		if err != nil || mounted {
			return mounted, err
		}
		for _, block := range []bool{false, true} {
			stages, err := t.stages(block, "")
			if err != nil {
				return false, err
			}
			if slices.ContainsFunc(stages, func(stage string) bool {
				return strings.HasSuffix(stage, "-"+s.iqn+"-lun-"+other)
			}) {
				return true, nil
			}
		}
	}
	return false, nil
}
