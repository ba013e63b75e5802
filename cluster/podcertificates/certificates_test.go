package podcertificates_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/cluster/internal/outage/outagetest"
	"github.com/kubeletkit/kubeletkit/cluster/podcertificates"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

var _ volume.PodCertificateSource = (*podcertificates.Certificates)(nil)

// world is Certificates that run, in a synctest bubble, with their API server.
type world struct {
	*podcertificates.Certificates
	t      *testing.T
	client *apitest.Clientset
	signal outage.Signal

	mu      sync.Mutex
	fail    error // of each request that is made
	lost    bool  // the answer of the API server is lost; the request arrives after late
	late    time.Duration
	created []*certificatesv1.PodCertificateRequest
	changed []types.UID
	events  []string
	slow    time.Duration // how long each event takes
	pod     *v1.Pod       // as the API server has it; nil if it does not
	log     strings.Builder
}

var web = testpod.New("web", testpod.UID("u1"), func(pod *v1.Pod) { pod.Spec.ServiceAccountName = "robot" })

var spec = &v1.PodCertificateProjection{
	SignerName: "example.com/s", KeyType: "ED25519", MaxExpirationSeconds: new(int32(7200)),
	UserAnnotations: map[string]string{"example.com/a": "b"},
}

func run(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, pod: web,
			client: apitest.NewClientset(&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot",
				Namespace: "default", UID: "robot-uid"}})}
		w.client.PrependReactor("create", "podcertificaterequests", w.create)
		var err error
		w.Certificates, err = podcertificates.New(w.signal.Client(w.client), "node-1", podcertificates.Options{
			NodeUID: func() types.UID { return "node-uid" },
			Pod: func(types.UID) (*v1.Pod, bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.pod, w.pod != nil
			},
			Changed: func(uid types.UID) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.changed = append(w.changed, uid)
			},
			Observer: runtime.Observer{Event: func(e runtime.Event) {
				time.Sleep(w.slow)
				w.mu.Lock()
				defer w.mu.Unlock()
				w.events = append(w.events, e.Type+" "+e.Reason+": "+e.Message)
			}, Logger: funcr.New(func(_, args string) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.log.WriteString(args + "\n")
			}, funcr.Options{Verbosity: 9})},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		test(w)
		cancel()
		require.NoError(t, <-done)
		if w.slow > 0 {
			events, _ := w.reported()
			assert.NotEmpty(t, events, "Run has waited for them")
		}
		assert.NotContains(t, w.log.String(), "PRIVATE")
	})
}

// create is the API server's side of a request.
func (w *world) create(a clienttesting.Action) (bool, kruntime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	object, ok := a.(clienttesting.CreateActionImpl).GetObject().(*certificatesv1.PodCertificateRequest)
	if w.fail != nil || !ok {
		return w.fail != nil, nil, w.fail
	}
	object = object.DeepCopy()
	w.created = append(w.created, object)
	if !w.lost {
		return false, nil, nil
	}
	w.lost = false
	late := w.late
	go func() {
		time.Sleep(late)
		_ = w.client.Tracker().Create(a.GetResource(), object, object.Namespace)
	}()
	return true, nil, errors.New("connection reset by peer")
}

// set sets the error of each request that is made.
func (w *world) set(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = err
}

// get asks for the certificate of the first source of a volume.
func (w *world) get() (key, chain string, err error) {
	w.t.Helper()
	k, c, err := w.PodCertificate(w.t.Context(), web, "v", 0, spec)
	return string(k), string(c), err
}

// latest waits and returns the request that was made last, and how many were.
func (w *world) latest() (*certificatesv1.PodCertificateRequest, int) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NotEmpty(w.t, w.created, "%s", w.log.String())
	return w.created[len(w.created)-1].DeepCopy(), len(w.created)
}

// answer sets the condition of the latest request, with a certificate for an hour, and waits.
func (w *world) answer(condition, chain string) {
	w.t.Helper()
	w.reply(condition, chain)
	synctest.Wait()
}

func (w *world) reply(condition, chain string) {
	w.t.Helper()
	r, _ := w.latest()
	r.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue,
		Reason: "Why", Message: "so"}}
	if condition == certificatesv1.PodCertificateRequestConditionTypeIssued {
		now := time.Now()
		r.Status.CertificateChain = chain
		r.Status.NotBefore, r.Status.BeginRefreshAt, r.Status.NotAfter = ptrTime(now), ptrTime(now.Add(30*time.Minute)),
			ptrTime(now.Add(time.Hour))
	}
	_, err := w.client.CertificatesV1().PodCertificateRequests(r.Namespace).UpdateStatus(w.t.Context(), r,
		metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// reported waits and returns the events, and how often the pod has changed.
func (w *world) reported() (events []string, changed int) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uid := range w.changed {
		assert.Equal(w.t, web.UID, uid)
	}
	return slices.Clone(w.events), len(w.changed)
}

func ptrTime(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }

func certificate(name string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)}))
}

const issued = certificatesv1.PodCertificateRequestConditionTypeIssued

func TestIssue(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		synctest.Wait()
		assert.Empty(t, w.client.Actions(), "no pod needs one")
		go func() {
			time.Sleep(500 * time.Millisecond)
			w.reply(issued, "# comment\n"+
				string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"},
					Bytes: []byte("leaf")}))+certificate("ca"))
		}()
		key, chain, err := w.get()
		require.NoError(t, err, "the volume waits for a second")
		assert.Equal(t, certificate("leaf")+certificate("ca"), chain)
		r, n := w.latest()
		assert.Equal(t, 1, n)
		assert.Equal(t, certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/s", PodName: "web", PodUID: "u1", ServiceAccountName: "robot",
			ServiceAccountUID: "robot-uid",
			NodeName:          "node-1", NodeUID: "node-uid", MaxExpirationSeconds: spec.MaxExpirationSeconds,
			StubPKCS10Request: r.Spec.StubPKCS10Request, UnverifiedUserAnnotations: spec.UserAnnotations,
		}, r.Spec)
		assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "u1"}},
			r.OwnerReferences)
		csr, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
		require.NoError(t, err)
		require.NoError(t, csr.CheckSignature())
		assert.Empty(t, csr.Subject.String())
		assert.Equal(t, parseKey(t, key).(ed25519.PrivateKey).Public(), csr.PublicKey)
		_, changed := w.reported()
		assert.Equal(t, 1, changed)

		again, _, err := w.get()
		require.NoError(t, err)
		assert.Equal(t, key, again)
		_, n = w.latest()
		assert.Equal(t, 1, n)
		for _, a := range w.client.Actions() {
			if list, ok := a.(clienttesting.ListActionImpl); ok {
				assert.Equal(t, "spec.nodeName=node-1", list.ListRestrictions.Fields.String())
			}
		}
	})
}

func parseKey(t *testing.T, text string) any {
	t.Helper()
	block, rest := pem.Decode([]byte(text))
	require.NotNil(t, block)
	assert.Empty(t, rest)
	assert.Equal(t, "PRIVATE KEY", block.Type)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(t, err)
	return key
}

func TestKeyTypes(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		for i, tc := range []struct {
			keyType string
			check   func(key any) bool
		}{
			{"RSA3072", func(key any) bool { return key.(*rsa.PrivateKey).N.BitLen() == 3072 }},
			{"RSA4096", func(key any) bool { return key.(*rsa.PrivateKey).N.BitLen() == 4096 }},
			{"ECDSAP256", func(key any) bool { return key.(*ecdsa.PrivateKey).Params().BitSize == 256 }},
			{"ECDSAP384", func(key any) bool { return key.(*ecdsa.PrivateKey).Params().BitSize == 384 }},
			{"ECDSAP521", func(key any) bool { return key.(*ecdsa.PrivateKey).Params().BitSize == 521 }},
		} {
			s := &v1.PodCertificateProjection{SignerName: "example.com/s", KeyType: tc.keyType}
			go func() {
				time.Sleep(100 * time.Millisecond)
				w.reply(issued, certificate("x"))
			}()
			key, _, err := w.PodCertificate(w.t.Context(), web, "v", i, s)
			require.NoError(t, err, tc.keyType)
			assert.True(t, tc.check(parseKey(t, string(key))), tc.keyType)
		}
		_, _, err := w.PodCertificate(w.t.Context(), web, "w", 0, &v1.PodCertificateProjection{KeyType: "DSA"})
		require.ErrorIs(t, err, podcertificates.ErrNotIssued)
		require.ErrorContains(t, err, `making a key of the type "DSA": unknown type of a key`)
	})
}

// The last events are received before Run returns.
func TestSlowEvents(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.slow = time.Second
		_, _, err := w.get()
		require.EqualError(t, err, "credential bundle is not issued yet")
		w.answer("Denied", "")
		events, _ := w.reported()
		require.Empty(t, events)
	})
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for condition, want := range map[string]struct{ err, event string }{
		"Denied": {`PodCertificateRequest was permanently denied: reason="Why" message="so"`, "was denied"},
		"Failed": {`PodCertificateRequest was permanently failed: reason="Why" message="so"`, "failed"},
	} {
		run(t, func(w *world) {
			_, _, err := w.get()
			require.EqualError(t, err, "credential bundle is not issued yet")
			w.answer(condition, "")
			_, _, err = w.get()
			require.EqualError(t, err, want.err)
			require.ErrorIs(t, err, podcertificates.ErrRefused)
			r, _ := w.latest()
			events, changed := w.reported()
			assert.Equal(t,
				[]string{fmt.Sprintf(`Warning %s: PodCertificateRequest default/%s %s, reason="Why", message="so"`,
					condition, r.Name, want.event)}, events)
			assert.Equal(t, 1, changed)
			time.Sleep(24 * time.Hour)
			_, n := w.latest()
			assert.Equal(t, 1, n, "it is not repeated")
		})
	}
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		_, _, err := w.get()
		require.Error(t, err)
		w.answer(issued, certificate("1"))
		first, _, err := w.get()
		require.NoError(t, err)
		time.Sleep(29 * time.Minute)
		_, n := w.latest()
		assert.Equal(t, 1, n)
		time.Sleep(7 * time.Minute)
		_, n = w.latest()
		assert.Equal(t, 2, n, "30 minutes and a jitter of 5 at most")
		key, chain, err := w.get()
		require.NoError(t, err)
		assert.Equal(t, first+certificate("1"), key+chain, "the one before is used until there is another")
		events, _ := w.reported()
		assert.Empty(t, events)
		time.Sleep(10 * time.Minute)
		_, n = w.latest()
		assert.Equal(t, 2, n)
		events, _ = w.reported()
		assert.Equal(t, []string{"Warning CertificateOverdueForRefresh: PodCertificate refresh overdue"}, events)
		time.Sleep(24 * time.Minute)
		events, _ = w.reported()
		assert.Equal(t, "Warning CertificateExpired: PodCertificate expired", events[1])
		w.answer(issued, certificate("2"))
		key, chain, err = w.get()
		require.NoError(t, err)
		assert.Equal(t, certificate("2"), chain)
		assert.NotEqual(t, first, key, "each request has a key of its own")
		events, changed := w.reported()
		assert.Len(t, events, 2)
		assert.Equal(t, 2, changed)
	})
}

// A clock that is wrong does not have certificates requested one after the other.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		_, _, err := w.get()
		require.Error(t, err)
		for range 3 {
			r, before := w.latest()
			past := ptrTime(time.Now().Add(-time.Hour))
			r.Status = certificatesv1.PodCertificateRequestStatus{
				Conditions:       []metav1.Condition{{Type: issued, Status: metav1.ConditionTrue}},
				CertificateChain: certificate("old"), NotBefore: past, BeginRefreshAt: past, NotAfter: past,
			}
			_, err := w.client.CertificatesV1().PodCertificateRequests(r.Namespace).UpdateStatus(w.t.Context(), r,
				metav1.UpdateOptions{})
			require.NoError(t, err)
			time.Sleep(59 * time.Second)
			_, n := w.latest()
			assert.Equal(t, before, n)
			time.Sleep(2 * time.Second)
			_, n = w.latest()
			assert.Equal(t, before+1, n)
		}
	})
}

// A certificate is refreshed soon after the clock has jumped to the time for that: the timer does not jump.
func TestClockJumpsAhead(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		_, _, err := w.get()
		require.Error(t, err)
		w.answer(issued, certificate("1"))
		_, _, err = w.get()
		require.NoError(t, err)
		w.SetClockAhead(36 * time.Minute)
		time.Sleep(time.Minute)
		_, n := w.latest()
		assert.Equal(t, 2, n)
	})
}

func TestDeletedRequest(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		_, _, err := w.get()
		require.Error(t, err)
		for i := range 3 {
			r, n := w.latest()
			require.Equal(t, i+1, n)
			require.NoError(t, w.client.CertificatesV1().PodCertificateRequests(r.Namespace).Delete(w.t.Context(),
				r.Name, metav1.DeleteOptions{}))
			synctest.Wait()
			_, _, err := w.get()
			require.ErrorContains(t, err, "appears to have been deleted")
			time.Sleep(time.Second)
		}
		w.answer(issued, certificate("1"))
		_, _, err = w.get()
		require.NoError(t, err)
		r, n := w.latest()
		require.NoError(t, w.client.CertificatesV1().PodCertificateRequests(r.Namespace).Delete(w.t.Context(), r.Name,
			metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		_, after := w.latest()
		assert.Equal(t, n, after, "the cluster removes answered requests")
	})
}

func TestPodGone(t *testing.T) {
	t.Parallel()
	ended := web.DeepCopy()
	ended.Status.Phase = v1.PodSucceeded
	for name, tc := range map[string]struct {
		end  func(w *world)
		pod  *v1.Pod
		want string
	}{
		"removed":      {func(w *world) { w.Update(nil, []*v1.Pod{web}) }, nil, "the API server does not have the pod"},
		"ended":        {func(w *world) { w.Update([]*v1.Pod{ended}, nil) }, ended, "the pod has ended"},
		"not in list":  {func(w *world) { w.Retain(nil) }, nil, "the API server does not have the pod"},
		"ended, lists": {func(w *world) { w.Retain([]*v1.Pod{ended}) }, ended, "the pod has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				_, _, err := w.get()
				require.Error(t, err)
				w.Update([]*v1.Pod{web}, nil)
				w.Retain([]*v1.Pod{web})
				w.answer(issued, certificate("1"))
				_, _, err = w.get()
				require.NoError(t, err)
				w.mu.Lock()
				w.pod = tc.pod
				w.mu.Unlock()
				tc.end(w)
				_, _, err = w.get()
				require.EqualError(t, err, "credential bundle is not issued yet: "+tc.want)
				time.Sleep(24 * time.Hour)
				_, n := w.latest()
				assert.Equal(t, 1, n, "nothing is refreshed")
			})
		})
	}
}

// A server without v1 is asked for v1beta1; one without both fails the volume.
func TestVersionsOfTheAPI(t *testing.T) {
	t.Parallel()
	refuse := func(client *apitest.Clientset, version string) {
		gone := func(a clienttesting.Action) error {
			return apierrors.NewGenericServerResponse(404, a.GetVerb(), a.GetResource().GroupResource(), "", "", 0,
				true)
		}
		client.PrependReactor("*", "podcertificaterequests", func(a clienttesting.Action) (bool, kruntime.Object,
			error) {
			return a.GetResource().Version == version, nil, gone(a)
		})
		client.PrependWatchReactor("podcertificaterequests", func(a clienttesting.Action) (bool, watch.Interface,
			error) {
			return a.GetResource().Version == version, nil, gone(a)
		})
	}
	run(t, func(w *world) {
		refuse(w.client, "v1")
		_, _, err := w.get()
		require.EqualError(t, err, "credential bundle is not issued yet")
		api := w.client.CertificatesV1beta1().PodCertificateRequests("default")
		list, err := api.List(w.t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		r := &list.Items[0]
		assert.Equal(t, "example.com/s", r.Spec.SignerName)
		assert.NotEmpty(t, r.Spec.StubPKCS10Request)
		now := time.Now()
		r.Status = certificatesv1beta1.PodCertificateRequestStatus{
			Conditions:       []metav1.Condition{{Type: issued, Status: metav1.ConditionTrue}},
			CertificateChain: certificate("1"), NotBefore: ptrTime(now), BeginRefreshAt: ptrTime(now.Add(time.Hour)),
			NotAfter: ptrTime(now.Add(2 * time.Hour)),
		}
		_, err = api.UpdateStatus(w.t.Context(), r, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		_, chain, err := w.get()
		require.NoError(t, err)
		assert.Equal(t, certificate("1"), chain)
	})
	run(t, func(w *world) {
		refuse(w.client, "v1")
		refuse(w.client, "v1beta1")
		_, _, err := w.get()
		require.ErrorIs(t, err, podcertificates.ErrNotIssued)
		require.ErrorContains(t, err, "the API server does not have the API of PodCertificateRequests")
	})
}

// A server of 1.35 requires the public key and the signature of the UID of the pod, and does not know StubPKCS10Request.
func TestProofOfPossession(t *testing.T) {
	t.Parallel()
	for _, keyType := range []string{"ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072"} {
		run(t, func(w *world) {
			var got []certificatesv1beta1.PodCertificateRequestSpec
			w.client.PrependReactor("*", "podcertificaterequests", func(a clienttesting.Action) (bool, kruntime.Object,
				error) {
				if a.GetResource().Version == "v1" {
					return true, nil, apierrors.NewGenericServerResponse(404, a.GetVerb(),
						a.GetResource().GroupResource(), "", "", 0, true)
				}
				create, ok := a.(clienttesting.CreateAction)
				if !ok {
					return false, nil, nil
				}
				spec := create.GetObject().(*certificatesv1beta1.PodCertificateRequest).Spec
				//lint:ignore SA1019 1.35 has nothing else
				if spec.PKIXPublicKey == nil {
					return true, nil, apierrors.NewInvalid(certificatesv1beta1.Kind("PodCertificateRequest"), "r",
						field.ErrorList{field.Invalid(field.NewPath("spec", "pkixPublicKey"), nil, "must be valid")})
				}
				got = append(got, spec)
				return false, nil, nil
			})
			_, _, err := w.PodCertificate(w.t.Context(), web, "v", 0,
				&v1.PodCertificateProjection{SignerName: "example.com/s", KeyType: keyType})
			require.EqualError(t, err, "credential bundle is not issued yet")
			require.Len(t, got, 1)
			assert.Nil(t, got[0].StubPKCS10Request)
			//lint:ignore SA1019 1.35 has nothing else
			key, err := x509.ParsePKIXPublicKey(got[0].PKIXPublicKey)
			require.NoError(t, err)
			//lint:ignore SA1019 1.35 has nothing else
			uid, proof := []byte(got[0].PodUID), got[0].ProofOfPossession
			hash := sha256.Sum256(uid)
			switch key := key.(type) { // as pkg/apis/certificates/validation of 1.35.4
			case ed25519.PublicKey:
				assert.True(t, ed25519.Verify(key, uid, proof))
			case *ecdsa.PublicKey:
				assert.True(t, ecdsa.VerifyASN1(key, hash[:], proof))
			case *rsa.PublicKey:
				assert.NoError(t, rsa.VerifyPSS(key, crypto.SHA256, hash[:], proof, nil))
			default:
				t.Errorf("%T", key)
			}
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := podcertificates.New(nil, "", podcertificates.Options{})
	require.ErrorContains(t, err, "the client is nil")
	require.ErrorContains(t, err, "the name of the node is required")
	require.ErrorContains(t, err, "Options.NodeUID is required")
	run(t, func(w *world) {
		synctest.Wait()
		require.ErrorIs(t, w.Run(w.t.Context()), runtime.ErrAlreadyRunning)
	})
}

// The certificates of a pod do not wait for the thousands that another pod requests.
func TestAPodWithManyCertificates(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.set(errors.New("connection refused"))
		gone, cancel := context.WithCancel(w.t.Context())
		cancel()
		many := testpod.New("many", testpod.UID("u2"), func(pod *v1.Pod) { pod.Spec.ServiceAccountName = "robot" })
		for i := range 100 {
			_, _, err := w.PodCertificate(gone, many, "v", i, spec)
			require.Error(t, err)
		}
		_, _, err := w.PodCertificate(gone, web, "v", 0, spec)
		require.Error(t, err)
		time.Sleep(5 * time.Minute)
		w.set(nil)
		outagetest.End(w.t.Context(), &w.signal) // all are due
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Len(t, w.created, 101)
		first := slices.IndexFunc(w.created,
			func(r *certificatesv1.PodCertificateRequest) bool { return r.Spec.PodUID == web.UID })
		assert.Less(t, first, 16, "each pod has its turn in each round of 16, whose requests come in any order")
	})
}
