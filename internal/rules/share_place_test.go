package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpu/internal/change"
	"github.com/gpufleet/terraform-provider-gpu/internal/gpu"
	"github.com/gpufleet/terraform-provider-gpu/internal/placement"
	"github.com/gpufleet/terraform-provider-gpu/internal/rules"
	"github.com/gpufleet/terraform-provider-gpu/internal/whatif"
)

const migGPU2 = "GPU-00000000-0000-4000-8000-000000000002"

// covering is a config over some GPUs only.
func covering(w gpu.Want, ids ...string) gpu.Want {
	w.Config.GPUs["gpu01"] = ids
	return w
}

func TestPlaceSharePrefers(t *testing.T) {
	small := freeGPU(migGPU2)
	small.VRAM = 40 * gib
	tests := map[string]struct {
		host  *gpu.Host
		share gpu.Share
		want  []gpu.SharedDevice
	}{
		"the fullest GPU that has room": {
			host:  has(laidOut(shareServer(), mpsConfig("ml", "gpu01")), "vdi", onto(share("a", 30*gib), migGPU1)),
			share: share("b", 50*gib), want: []gpu.SharedDevice{{GPU: migGPU1}},
		},
		"the next one when the fullest has none": {
			host:  has(laidOut(shareServer(), mpsConfig("ml", "gpu01")), "vdi", onto(share("a", 31*gib), migGPU1)),
			share: share("b", 50*gib), want: []gpu.SharedDevice{{GPU: migGPU0}},
		},
		"the one with more shares when none says what it wants": {
			host:  has(laidOut(shareServer(), mpsConfig("ml", "gpu01")), "vdi", onto(share("a", 0), migGPU1)),
			share: share("b", 0), want: []gpu.SharedDevice{{GPU: migGPU1}},
		},
		"a GPU that others share before one for itself": {
			host:  laidOut(shareServer(), covering(mpsConfig("ml", "gpu01"), migGPU1)),
			share: share("a", gib), want: []gpu.SharedDevice{{GPU: migGPU1}},
		},
		"an instance before a whole GPU": {
			host:  shareServer(freeGPU(migGPU0), h100(migGPU1, at("3g.40gb", 0))),
			share: share("a", gib), want: []gpu.SharedDevice{{GPU: migGPU1, Instance: ptr(at("3g.40gb", 0))}},
		},
		"the smallest instance that is large enough": {
			host:  shareServer(h100(migGPU0, at("3g.40gb", 0), at("2g.20gb", 4), at("1g.10gb", 6))),
			share: share("a", 15*gib), want: []gpu.SharedDevice{{GPU: migGPU0, Instance: ptr(at("2g.20gb", 4))}},
		},
		"the smallest GPU that is large enough": {
			host:  shareServer(freeGPU(migGPU0), freeGPU(migGPU1), small),
			share: share("a", 15*gib), want: []gpu.SharedDevice{{GPU: migGPU2}},
		},
		"several GPUs in the order of their ids": {
			host: has(laidOut(shareServer(freeGPU(migGPU0), freeGPU(migGPU1), freeGPU(migGPU2)),
				covering(mpsConfig("ml", "gpu01"), migGPU0, migGPU1, migGPU2)),
				"vdi", onto(share("a", gib), migGPU2)),
			share: gpu.Share{Name: "b", Host: "gpu01", Count: 2}, want: []gpu.SharedDevice{{GPU: migGPU0}, {GPU: migGPU2}},
		},
		"pinned GPUs in the order of their ids": {
			host: shareServer(), share: pinned(share("a", 0), migGPU1, migGPU0), want: []gpu.SharedDevice{{GPU: migGPU0}, {GPU: migGPU1}},
		},
		"where it is": {
			host:  has(laidOut(shareServer(), mpsConfig("ml", "gpu01")), "vdi", onto(share("a", 30*gib), migGPU1)),
			share: onto(share("b", gib), migGPU0), want: []gpu.SharedDevice{{GPU: migGPU0}},
		},
		"what it takes over under its name": {
			host:  has(shareServer(), "vdi", onto(share("A", 0), migGPU0), onto(share("b", 0), migGPU1)),
			share: share("a", 0), want: []gpu.SharedDevice{{GPU: migGPU0}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := placement.PlaceShare(tt.host, "gpu01", &tt.share, "t")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// A share's own claim does not stand in its way.
func TestPlaceShareDoesNotCountItself(t *testing.T) {
	h := has(laidOut(shareServer(), covering(mpsConfig("ml", "gpu01"), migGPU0)), "vdi", onto(share("a", 60*gib), migGPU0))
	grown := onto(share("renamed", 80*gib), migGPU0)
	if _, err := placement.PlaceShare(h, "gpu01", &grown, "claim-a"); err != nil {
		t.Errorf("its own claim counts: %v", err)
	}
	if _, err := placement.PlaceShare(h, "gpu01", &grown, "t"); placement.FaultOf(err) != placement.LackMemory {
		t.Errorf("another's claim does not count: %v", err)
	}
}

func TestPlaceShareSaysWhy(t *testing.T) {
	lost := has(shareServer(h100(migGPU0)), "vdi")
	broken := shareServer()
	broken.GPUs = broken.GPUs[:1]
	broken.GPUs[0].Problem = "XID 79"
	drifted := laidOut(shareServer(h100(migGPU0, at("3g.40gb", 0))), covering(mpsConfig("ml", "gpu01"), migGPU0))
	wanted := migConfig("ml", profiles("3g.40gb", 1), "gpu01")
	notYet := laidOut(shareServer(freeGPU(migGPU0)), covering(wanted, migGPU0))
	prohibited := shareServer(freeGPU(migGPU0))
	prohibited.GPUs[0].ComputeMode = gpu.ComputeProhibited
	half := shareServer(h100(migGPU0, at("3g.40gb", 0)))
	half.GPUs[0].MIG.Instances[0].Compute = nil
	inPool := fromShares(share("a", 0), "gpu01/team")
	full := sharePool("team", "gpu01")
	full.Pool.Quotas = map[string]gpu.PoolQuota{"": {Shares: ptr(0)}}
	tests := map[string]struct {
		host  *gpu.Host
		share gpu.Share
		rule  string
		says  string
	}{
		"no GPU": {
			host: gpuServer("gpu01"), share: share("a", 0), rule: "share-placement", says: "there is no GPU for it",
		},
		"a lost instance": {
			host: lost, share: into(share("a", 0), at("1g.10gb", 0)), rule: "share-placement",
			says: "instance 1g.10gb@0 of GPU " + migGPU0 + " (NVIDIA H100 80GB HBM3) does not exist",
		},
		"a lost GPU": {
			host: lost, share: onto(share("a", 0), migGPU1), rule: "share-placement", says: "GPU " + migGPU1 + " (unknown model) is not on the host",
		},
		"a GPU that went into MIG mode": {host: lost, share: onto(share("a", 0), migGPU0), rule: "share-placement", says: "is in MIG mode"},
		"MIG mode without instances":    {host: lost, share: share("a", 0), rule: "share-placement", says: "has no GPU instance"},
		"a broken GPU":                  {host: broken, share: share("a", 0), rule: "share-placement", says: "does not work (XID 79)"},
		"MIG mode under MPS": {
			host: drifted, share: share("a", 0), rule: "share-placement", says: `is in MIG mode, which its partition config "ml" does not want`,
		},
		"MIG mode is still to come": {host: notYet, share: share("a", 0), rule: "share-placement", says: "is not in MIG mode"},
		"prohibited":                {host: prohibited, share: share("a", 0), rule: "share-placement", says: "compute mode prohibited"},
		"half an instance":          {host: half, share: share("a", 0), rule: "share-placement", says: "has no compute instance"},
		"another host's pool": {
			host: shareServer(), share: inPool, rule: "share-placement", says: `pool "gpu01/team", which is not on host "gpu01"`,
		},
		"a quota": {
			host: pooled(shareServer(), full), share: inPool, rule: "pool-quota",
			says: `its quota of shares is 0 on host "gpu01", and nobody has any`,
		},
		"pinned to a GPU that is not there": {
			host: shareServer(), share: pinned(share("a", 0), "GPU-99"), rule: "share-placement", says: "there is no GPU GPU-99",
		},
		"apart": {
			host: shareServer(freeGPU(migGPU0), h100(migGPU1, at("3g.40gb", 0))), rule: "share-placement", says: "which no process reaches together",
			share: gpu.Share{
				Name: "a", Host: "gpu01", Count: 2, Devices: []gpu.SharedDevice{{GPU: migGPU0}, {GPU: migGPU1, Instance: ptr(at("3g.40gb", 0))}},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			at, err := placement.PlaceShare(tt.host, "gpu01", &tt.share, "t")
			if err == nil {
				t.Fatalf("placed at %v", at)
			}
			f := rules.FindingOf(gpu.RefusalOf(err))
			if f.Rule != tt.rule || !strings.Contains(err.Error(), tt.says) || f.Title == "" || f.Found == "" || f.Fix == "" {
				t.Errorf("error %q, finding %+v; want rule %s and %q", err, f, tt.rule, tt.says)
			}
		})
	}
}

func TestRankHosts(t *testing.T) {
	pool := sharePool("team", "gpu01", "gpu02", "gpu03", "gpu04", "gpu05")
	hosts := map[string]*gpu.Host{}
	for i := 1; i <= 5; i++ {
		h := shareServer()
		h.Name = fmt.Sprintf("gpu0%d", i)
		c := mpsConfig("ml", h.Name)
		hosts[h.Name] = pooled(laidOut(h, c), pool)
	}
	drawn := func(s gpu.Share, ids ...string) gpu.Share { return onto(fromShares(s, "gpu01/team"), ids...) }
	has(hosts["gpu02"], "vdi", drawn(share("a", 20*gib), migGPU0))
	has(hosts["gpu03"], "vdi", drawn(share("b", 40*gib), migGPU0))
	has(hosts["gpu04"], "vdi", drawn(share("c", 70*gib), migGPU0), drawn(share("d", 70*gib), migGPU1))
	has(hosts["gpu05"], "platform", drawn(share("new", 40*gib), migGPU0))
	want := fromShares(share("new", 30*gib), "gpu01/team")
	fit, lacks := placement.RankHosts(hosts, &want, "t")
	if diff := cmp.Diff([]string{"gpu03", "gpu02", "gpu01"}, fit); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	if len(lacks) != 2 || lacks["gpu04"].Fault != placement.LackMemory || lacks["gpu05"].Fault != placement.ShareNamesake {
		t.Errorf("lacks: %v", lacks)
	}
	if fit, _ = placement.RankHosts(hosts, &want, "claim-new"); !slices.Contains(fit, "gpu05") {
		t.Errorf("its own claim keeps it from its host: %v", fit)
	}
}

// What the largest first would not place is found by trying.
func TestPlanProofFindsTheOnlyWay(t *testing.T) {
	w := world(laidOut(shareServer(), mpsConfig("ml", "gpu01")))
	for i, size := range []gpu.Bytes{30, 30, 25, 25, 25} {
		name := fmt.Sprintf("s%d", i)
		put(&w, name, wantShare(share(name, size*gib)))
	}
	found := of("share-placement", rules.Check(w, shareP(share("last", 25*gib)), nil))
	if len(found) != 1 || found[0].Level != rules.Error || !strings.Contains(found[0].Title, "in some orders only") ||
		!strings.Contains(found[0].Fix, "gpu_ids") {
		t.Errorf("30+25+25 GiB twice is 160 GiB, and 30+30 on one GPU leaves no room for the third of 25: %+v", found)
	}
	found = of("share-placement", rules.Check(w, shareP(share("last", 26*gib)), nil))
	if len(found) != 1 || found[0].Level != rules.Error || strings.Contains(found[0].Title, "order") {
		t.Errorf("one GiB too many: got %+v", found)
	}
}

// The first share beyond the room is told so, and those before it are not. One error is
// enough: it names them all.
func TestPlanProofBlamesTheLast(t *testing.T) {
	w := world(laidOut(shareServer(), mpsConfig("ml", "gpu01")))
	for i := range 12 {
		s := share(fmt.Sprintf("s%02d", i), 10*gib)
		s.GPUIDs = []string{migGPU0}
		p := create(s.Name, wantShare(s))
		found := of("share-placement", rules.Check(w, p, nil))
		if (len(found) > 0) != (i == 8) {
			t.Errorf("share %d of 10 GiB on 80 GiB: got %+v", i, found)
		}
		w.Others.Put(s.Name, p)
	}
	elsewhere := share("other", 80*gib)
	if found := of("share-placement", rules.Check(w, shareP(elsewhere), nil)); len(found) != 0 {
		t.Errorf("a share that has room is told of the others: %+v", found)
	}
}

// On the host every claim counts; in a plan the shares of this state have plans of their
// own.
func TestLayoutUnderOwnShares(t *testing.T) {
	h := has(laidOut(shareServer(), mpsConfig("ml", "gpu01")), "vdi", onto(share("a", gib), migGPU0))
	destroyed := change.Change{Subject: "x", Token: "claim-ml", Prior: mpsConfig("ml", "gpu01")}
	w := world(h)
	w.Others = whatif.NewBook()
	if found := rules.Check(w, destroyed, nil); len(found) != 0 {
		t.Errorf("at plan, the share's plan not known: %+v", found)
	}
	stays := change.Change{
		Subject: `gpu_share "a"`, Token: "claim-a", Want: wantShare(onto(share("a", gib), migGPU0)),
		Prior: wantShare(onto(share("a", gib), migGPU0)), Unchanged: true,
	}
	w.Others.Put("claim-a", stays)
	if found := of("share-placement", rules.Check(w, destroyed, nil)); len(found) != 1 || found[0].Level != rules.Error {
		t.Errorf("at plan, beside a share that stays: %+v", found)
	}
	w.Others.Put("claim-ml", destroyed)
	if found := of("share-placement", rules.Check(w, stays, nil)); len(found) != 1 || found[0].Level != rules.Error || found[0].Stood {
		t.Errorf("the share that stays, beside the config that goes: %+v", found)
	}
	w.Others.Put("claim-a", change.Change{Subject: `gpu_share "a"`, Token: "claim-a", Prior: stays.Want})
	if found := rules.Check(w, destroyed, nil); len(found) != 0 {
		t.Errorf("at plan, beside a share that is destroyed too: %+v", found)
	}
	w.Others = nil
	if found := of("share-placement", rules.Check(w, destroyed, nil, rules.HostScope)); len(found) != 1 || found[0].Level != rules.Error {
		t.Errorf("on the host: %+v", found)
	}
}

// A planned layout counts in place of the one that is there.
func TestPlacesOfAPlannedLayout(t *testing.T) {
	w := world(shareServer())
	s := share("a", 0)
	s.Profile = "3g.40gb"
	if found := of("share-placement", rules.Check(w, shareP(s), nil)); len(found) != 1 {
		t.Errorf("without a layout: %+v", found)
	}
	put(&w, "c", migConfig("ml", profiles("3g.40gb", 2), "gpu01"))
	if found := of("share-placement", rules.Check(w, shareP(s), nil)); len(found) != 1 ||
		!strings.Contains(found[0].Fix, "refer to it with `config`") {
		t.Errorf("without a reference to what makes the instances: %+v", found)
	}
	s.Config = "ml"
	for i := range 3 {
		other := s
		other.Name = fmt.Sprintf("s%d", i)
		put(&w, other.Name, wantShare(other))
	}
	if found := of("share-placement", rules.Check(w, shareP(s), nil)); len(found) != 0 {
		t.Errorf("the fourth of four instances: %+v", found)
	}
	put(&w, "fifth", wantShare(gpu.Share{Name: "fifth", Host: "gpu01", Config: "ml", Count: 1}))
	if found := of("share-placement", rules.Check(w, shareP(s), nil)); len(found) != 1 {
		t.Errorf("the fifth: %+v", found)
	}
}

// A host that cannot be asked may have the room.
func TestShareOfAPoolWithASilentHost(t *testing.T) {
	pool := sharePool("team", "gpu01", "gpu02")
	taken := onto(fromShares(share("a", 0), "gpu01/team"), migGPU0)
	h := has(pooled(shareServer(freeGPU(migGPU0)), pool), "vdi", taken)
	w := world(h)
	put(&w, "p", pool)
	if found := of("share-placement", rules.Check(w, shareP(fromShares(share("b", 0), "gpu01/team")), nil)); len(found) != 0 {
		t.Errorf("got %+v", found)
	}
}

// A share takes the GPU of one that the run has not planned yet and destroys.
func TestAShareTakesTheWholeGPUOfOneThatGoes(t *testing.T) {
	w := world(has(shareServer(freeGPU(migGPU0)), "vdi", onto(share("old", 60*gib), migGPU0)))
	w.Others = whatif.NewBook()
	if found := rules.Check(w, shareP(share("new", 60*gib)), nil); len(found) != 0 {
		t.Errorf("the old one is not planned yet: %+v", found)
	}
	old := w.Hosts["gpu01"].Claims[0]
	w.Others.Put("t", shareP(share("new", 60*gib)))
	gone := change.Change{Subject: "old", Token: old.Token, Prior: old.Want}
	if found := rules.Check(w, gone, nil); len(found) != 0 {
		t.Errorf("it goes: %+v", found)
	}
	stays := change.Change{Subject: "old", Token: old.Token, Prior: old.Want, Want: old.Want, Unchanged: true}
	if found := of("share-placement", rules.Check(w, stays, nil)); len(found) != 1 || found[0].Level != rules.Error || found[0].Stood {
		t.Errorf("it stays: %+v", found)
	}
}

// A config leaves a GPU for another one that has to be reset. That a service watches it is said before the
// run has planned that the share on the former one goes, as it is after.
func TestAServiceIsToldOfUnderAShareThatGoes(t *testing.T) {
	onGPU := func(id string) gpu.Want {
		return edited(migConfig("ml", profiles("3g.40gb", 1), "gpu01"), func(c *gpu.PartitionConfig) {
			c.GPUs, c.MaxDisruption = map[string][]string{"gpu01": {id}}, gpu.DisruptGPUReset
		})
	}
	before := onGPU(migGPU0)
	h := laidOut(shareServer(ampere(h100(migGPU0, at("3g.40gb", 4))), migOff(ampere(h100(migGPU1)))), before)
	h.Units = []string{"nvidia-dcgm.service"}
	w := world(has(h, "vdi", into(share("old", 0), at("3g.40gb", 4))))
	moves := change.Change{Subject: label(before), Token: h.Claims[0].Token, Prior: before, Want: onGPU(migGPU1)}
	gone := change.Change{Subject: "old", Token: h.Claims[1].Token, Prior: h.Claims[1].Want}
	for _, order := range [][]change.Change{{moves, gone}, {gone, moves}} {
		w.Others = whatif.NewBook()
		var all []rules.Finding
		for _, p := range order {
			found := rules.Check(w, p, nil)
			all = append(all, found...)
			w.Others.Put(p.Token, p)
		}
		if said := of("mig-mode", all); len(said) != 1 || said[0].Level != rules.Warning || said[0].Path != "quiesce_units" {
			t.Errorf("%s first: %+v", order[0].Subject, all)
		}
	}
}

// BenchmarkPlanOfShares plans shares of all sizes that a pool of ten hosts has no room for in
// every order. It is to stay far below a second: each share is checked beside all others.
func BenchmarkPlanOfShares(b *testing.B) {
	for b.Loop() {
		var hosts []*gpu.Host
		var names []string
		for i := range 10 {
			h := shareServer()
			h.Name = fmt.Sprintf("h%04d", i)
			hosts, names = append(hosts, h), append(names, h.Name)
		}
		w := world(hosts...)
		pool := sharePool("team", names...)
		put(&w, "c", mpsConfig("ml", names...))
		put(&w, "p", pool)
		refused := 0
		for i := range 100 {
			s := fromShares(share(fmt.Sprintf("s%d", i), gpu.Bytes(5+i%30)*gib), pool.Pool.ID)
			s.Config = "ml"
			p := create(s.Name, wantShare(s))
			refused += len(of("share-placement", rules.Check(w, p, nil)))
			w.Others.Put(p.Token, p)
		}
		if refused != 1 {
			b.Fatalf("told %d times, want once", refused)
		}
	}
}
