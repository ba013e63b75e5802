package scsi

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestRecords(t *testing.T) {
	pv := &v1.PersistentVolume{}
	pv.Name = "pv-1"
	pv.Spec.ISCSI = &v1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", Portals: []string{"10.0.0.2:3261",
		"10.0.0.1:3260"}, IQN: "iqn.2026-01.io.test:t-lun-1", Lun: 7, ISCSIInterface: "eth0"}
	r := recordOf(pv)
	assert.Equal(t, record{VolName: "pv-1", Portals: []string{"10.0.0.1:3260", "10.0.0.2:3261"},
		Iqn: "iqn.2026-01.io.test:t-lun-1", Lun: "7", InitIface: "eth0", Iface: "eth0"}, r)
	parsed, err := parseStage("/plugins/kubernetes.io/iscsi/iface-eth0/" + r.key())
	require.NoError(t, err)
	assert.Equal(t, record{Portals: []string{"10.0.0.1:3260"}, Iqn: r.Iqn, Lun: "7", Iface: "eth0"}, parsed)

	pv.Spec.ISCSI.InitiatorName = ptr.To("iqn.2026-01.io.test:i")
	assert.Equal(t, "10.0.0.1:3260:pv-1", recordOf(pv).Iface)
	for key, ok := range map[string]bool{"[fe80::1]:3260-iqn.2026-01.io:t-lun-0": true, "a-b:3260-eui.02-lun-1": true,
		"10.0.0.1:3260-naa.02-lun-1": true, "": false, "10.0.0.1": false, "10.0.0.1:3260-iqn.2026-01.io:t": false} {
		_, err := parseStage("/iface-default/" + key)
		assert.Equal(t, ok, err == nil, key)
	}
}

func TestSamePortal(t *testing.T) {
	assert.True(t, samePortal("[fe80::1]", "[fe80::1]:3260"))
	assert.True(t, samePortal("[fe80:0::1]:3260", "[fe80::1]:3260"))
	assert.True(t, samePortal("san:3260", "san:3260"))
	assert.False(t, samePortal("san:3260", "[]:"))
	assert.False(t, samePortal("10.0.0.1:3260", "10.0.0.1:3261"))
}

func TestIfaceSettings(t *testing.T) {
	assert.Equal(t, [][2]string{{"iface.hwaddress", "00:11"}, {"iface.transport_name", "tcp"}},
		ifaceSettings("# BEGIN RECORD\niface.iscsi_ifacename = default\niface.hwaddress = 00:11\n"+
			"iface.ipaddress = <empty>\niface.transport_name = tcp\niface.initiatorname = iqn.x\nother = 1\nbroken\n"))
}
