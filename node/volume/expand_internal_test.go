package volume

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// sized is a plugin whose volumes can be expanded. Its claim is its ClaimSource.
type sized struct {
	PersistentBase
	claim *v1.PersistentVolumeClaim
	sizes []string // that it was expanded to
	reads int      // of the claim
	err   error
}

func (*sized) Name() string                          { return "example.com/sized" }
func (*sized) Supports(pv *v1.PersistentVolume) bool { return pv.Spec.NFS != nil }

func (*sized) Publish(_ context.Context, req PersistentRequest) (Published, error) {
	return Published{Volume: runtime.Volume{HostPath: req.Dir}}, nil
}

func (s *sized) Expand(_ context.Context, req PersistentRequest) error {
	size := req.Volume.Spec.Capacity[v1.ResourceStorage]
	s.sizes = append(s.sizes, size.String())
	return s.err
}

func (s *sized) Claim(context.Context, string, string) (*v1.PersistentVolumeClaim, error) {
	s.reads++
	return s.claim, nil
}

func (s *sized) PersistentVolume(context.Context, string) (*v1.PersistentVolume, error) {
	pv := &v1.PersistentVolume{}
	pv.Name, pv.Spec.NFS = "pv", &v1.NFSVolumeSource{}
	pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: "claim"}
	return pv, nil
}

func (s *sized) UpdateStatus(_ context.Context, old, updated *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	if old.ResourceVersion != s.claim.ResourceVersion {
		return nil, errors.New("conflict")
	}
	s.claim = updated.DeepCopy()
	s.claim.ResourceVersion += "+"
	return s.claim, nil
}

func claimOf(capacity, allocated string, status v1.ClaimResourceStatus, modes ...v1.PersistentVolumeAccessMode,
) *v1.PersistentVolumeClaim {
	claim := &v1.PersistentVolumeClaim{}
	claim.UID, claim.Spec.VolumeName, claim.Spec.AccessModes = types.UID("claim"), "pv", modes
	claim.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	claim.Status.Phase = v1.ClaimBound
	claim.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(capacity)}
	if allocated != "" {
		claim.Status.AllocatedResources = v1.ResourceList{v1.ResourceStorage: resource.MustParse(allocated)}
	}
	if status != "" {
		claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: status}
	}
	return claim
}

func TestExpansionOf(t *testing.T) {
	pending := claimOf("1Gi", "", "")
	pending.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending,
		Status: v1.ConditionTrue}}
	complete := claimOf("2Gi", "2Gi", "", v1.ReadWriteMany)
	complete.Annotations = map[string]string{notRequired: ""}
	for name, tc := range map[string]struct {
		claim    *v1.PersistentVolumeClaim
		want     string
		mark     bool
		complete bool
	}{
		"nothing":                      {claimOf("1Gi", "", ""), "0", false, false},
		"not by the controller yet":    {claimOf("1Gi", "2Gi", v1.PersistentVolumeClaimControllerResizeInProgress), "0", false, false},
		"pending":                      {claimOf("1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending), "2Gi", true, true},
		"begun":                        {claimOf("1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInProgress), "2Gi", true, true},
		"infeasible":                   {claimOf("1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizeInfeasible), "0", false, false},
		"by another node":              {claimOf("2Gi", "2Gi", "", v1.ReadWriteMany), "2Gi", false, false},
		"complete by the controller":   {complete, "0", false, false},
		"by the controller, for a pod": {claimOf("2Gi", "2Gi", "", v1.ReadWriteOnce), "0", false, false},
		"by an old controller":         {pending, "2Gi", false, true},
		"for another claim":            {claimOf("512Mi", "", ""), "1Gi", false, true},
		"without a capacity":           {claimOf("0", "", ""), "0", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := expansionOf(tc.claim, resource.MustParse("1Gi"))
			assert.Equal(t, tc.want, got.size.String())
			assert.Equal(t, tc.mark, got.mark)
			assert.Equal(t, tc.complete, got.complete)
		})
	}
}

// A volume is expanded while its pod runs, and its claim says how far that is.
func TestExpand(t *testing.T) {
	infeasible := errors.Join(errors.New("too large"), ErrInfeasible)
	for name, tc := range map[string]struct {
		err      error
		sizes    int // calls in three minutes
		status   v1.ClaimResourceStatus
		capacity string
		reason   string
		events   int
	}{
		"succeeds":   {nil, 1, "", "2Gi", "FileSystemResizeSuccessful", 1},
		"infeasible": {infeasible, 1, v1.PersistentVolumeClaimNodeResizeInfeasible, "1Gi", "VolumeResizeFailed", 1},
		"in use":     {ErrInUse, 1, v1.PersistentVolumeClaimNodeResizeInProgress, "1Gi", "VolumeResizeFailed", 1},
		"final":      {ErrFinal, 3, v1.PersistentVolumeClaimNodeResizeInProgress, "1Gi", "VolumeResizeFailed", 3},
		"transient":  {errors.New("away"), 3, v1.PersistentVolumeClaimNodeResizeInProgress, "1Gi", "VolumeResizeFailed", 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plugin := &sized{claim: claimOf("1Gi", "", ""), err: tc.err}
				events := make(chan runtime.Event, 10)
				m, err := New(Options{Persistent: []PersistentPlugin{plugin}, Sources: Sources{Claims: plugin},
					Observer: runtime.Observer{Event: func(e runtime.Event) { events <- e }}})
				require.NoError(t, err)
				pod := testpod.New("web", testpod.UID("web"), testpod.Containers("main"), testpod.Volumes(v1.Volume{Name: "data",
					VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}))
				dir := filepath.Join(t.TempDir(), "web")
				setUp := func() {
					t.Helper()
					_, err := m.SetUp(t.Context(), pod, dir)
					require.NoError(t, err)
				}
				setUp()
				assert.Empty(t, plugin.sizes)
				assert.Equal(t, 1, plugin.reads, "once for a start")
				plugin.claim = claimOf("1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending)
				plugin.claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{
					{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
				setUp()
				assert.Empty(t, plugin.sizes, "the claim is read each minute")
				for range 3 {
					time.Sleep(time.Minute)
					setUp()
				}
				assert.Len(t, plugin.sizes, tc.sizes)
				claim := plugin.claim.Status
				assert.Equal(t, tc.status, claim.AllocatedResourceStatuses[v1.ResourceStorage])
				assert.Equal(t, tc.capacity, claim.Capacity.Storage().String())
				synctest.Wait()
				require.Len(t, events, tc.events)
				assert.Equal(t, tc.reason, (<-events).Reason)
				switch {
				case tc.err == nil:
					assert.Empty(t, claim.Conditions)
				case isFinal(tc.err):
					assert.Equal(t, v1.PersistentVolumeClaimNodeResizeError, claim.Conditions[1].Type)
				}
			})
		})
	}
}

// A failure that repeats keeps the time of its condition.
func TestFailedExpansion(t *testing.T) {
	now := time.Now()
	size := resource.MustParse("2Gi")
	claim := failed(claimOf("1Gi", "2Gi", v1.PersistentVolumeClaimNodeResizePending), size, ErrInfeasible, now)
	again := failed(claim, size, errors.Join(errors.New("again"), ErrInfeasible), now.Add(time.Hour))
	require.Len(t, again.Status.Conditions, 1)
	assert.Equal(t, metav1.NewTime(now), again.Status.Conditions[0].LastTransitionTime)
	assert.Contains(t, again.Status.Conditions[0].Message, "again")
}

// The controller may try the size that the user requests now if the one before has failed twice, and is not under way.
func TestAnotherSizeIsRequested(t *testing.T) {
	const infeasible, begun = v1.PersistentVolumeClaimNodeResizeInfeasible, v1.PersistentVolumeClaimNodeResizeInProgress
	for _, tc := range []struct {
		err    error
		size   string
		failed bool // before
		want   v1.ClaimResourceStatus
	}{
		{ErrFinal, "3Gi", true, infeasible}, {ErrFinal, "3Gi", false, begun}, {ErrFinal, "2Gi", true, begun},
		{ErrInUse, "3Gi", true, begun}, {ErrInfeasible, "2Gi", false, infeasible},
	} {
		claim := claimOf("1Gi", tc.size, begun) // 2Gi are requested
		if tc.failed {
			claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimNodeResizeError,
				Status: v1.ConditionTrue}}
		}
		out := failed(claim, resource.MustParse(tc.size), tc.err, time.Now())
		assert.Equal(t, tc.want, out.Status.AllocatedResourceStatuses[v1.ResourceStorage], "%+v", tc)
		assert.True(t, hasCondition(out, v1.PersistentVolumeClaimNodeResizeError))
	}
}

// A claim whose volume was expanded before it was bound gets the size of the volume. If the node has nothing to do for
// that, or cannot now, the claim stays as it is.
func TestVolumeOfAnotherClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		calls    int // in three minutes
		capacity string
		events   int
	}{
		"succeeds":    {nil, 1, "1Gi", 1},
		"unsupported": {ErrUnsupported, 1, "512Mi", 0},
		"final":       {ErrFinal, 3, "512Mi", 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plugin := &sized{claim: claimOf("512Mi", "", ""), err: tc.err}
				events := make(chan runtime.Event, 10)
				m, err := New(Options{Persistent: []PersistentPlugin{plugin}, Sources: Sources{Claims: plugin},
					Observer: runtime.Observer{Event: func(e runtime.Event) { events <- e }}})
				require.NoError(t, err)
				pod := testpod.New("web", testpod.UID("web"), testpod.Containers("main"), testpod.Volumes(v1.Volume{Name: "data",
					VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}))
				dir := filepath.Join(t.TempDir(), "web")
				for range 3 {
					_, err := m.SetUp(t.Context(), pod, dir)
					require.NoError(t, err)
					time.Sleep(time.Minute)
				}
				assert.Len(t, plugin.sizes, tc.calls)
				assert.Equal(t, tc.capacity, plugin.claim.Status.Capacity.Storage().String())
				assert.Empty(t, plugin.claim.Status.AllocatedResourceStatuses)
				assert.Empty(t, plugin.claim.Status.Conditions)
				synctest.Wait()
				assert.Len(t, events, tc.events)
			})
		})
	}
}
