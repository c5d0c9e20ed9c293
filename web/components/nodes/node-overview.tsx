"use client";
import { Badge } from "@/components/ui/badge";
import { Card, Fact, Facts, Stat, Stats } from "@/components/ui/card";
import { Ago, Id, Moment } from "@/components/ui/values";
import { megabytes, percent, ppm } from "@/lib/format";
import type { NodeView } from "./node-cells";
import { NodeHardware } from "./node-hardware";
import { NodeWhy } from "./node-why";
import { NodeWork } from "./node-work";

const HOUR_MS = 3_600_000;

export function NodeOverview({ node }: { node: NodeView }) {
  return (
    <div className="grid gap-5">
      <Now node={node} />
      <div className="grid min-w-0 gap-5 xl:grid-cols-2 xl:items-start">
        {node.can_manage && (
          <div className="grid min-w-0 gap-5">
            <NodeWork node={node} />
            <NodeWhy node={node} />
          </div>
        )}
        <div className="grid min-w-0 gap-5">
          <NodeHardware node={node} />
          <Sandbox node={node} />
          {node.can_manage && <About node={node} />}
        </div>
        {!node.can_manage && <About node={node} />}
      </div>
    </div>
  );
}

/** A node that polls another hub of the pool reports its free cores there. */
function Now({ node }: { node: NodeView }) {
  const { profile } = node;
  const used = node.cores_free == null ? null : Math.max(0, profile.cores - node.cores_free);
  const ram = node.ram_free_mb == null ? null : Math.max(0, profile.ram_mb - node.ram_free_mb);
  const spans = knownSpans(node);
  const week = spans.find((span) => span.hours === 168);
  const day = spans.find((span) => span.hours === 24);
  return (
    <Stats>
      <Stat name="Running" hint={`${node.leased} about to start`}>
        {node.running}
      </Stat>
      <Stat name="Cores reserved" hint={`of ${profile.cores}`}>
        {used === null ? "–" : used.toLocaleString("en-US", { maximumFractionDigits: 2 })}
      </Stat>
      <Stat name="Memory reserved" hint={`of ${megabytes(profile.ram_mb)}`}>
        {ram === null ? "–" : megabytes(ram)}
      </Stat>
      <Stat name="Reputation" hint={node.reputation?.newcomer ? "newcomer" : "likely to complete a job"}>
        {node.reliability == null ? "–" : percent(node.reliability)}
      </Stat>
      <Stat name="Online, 7 days" hint={day ? `last day ${ppm(day.share_ppm, 1)}` : undefined}>
        {week ? ppm(week.share_ppm, 1) : "–"}
      </Stat>
      <Stat
        name="Last seen"
        hint={
          <>
            joined <Ago ms={node.enrolled_at_ms} />
          </>
        }
      >
        <Ago ms={node.last_seen_ms} />
      </Stat>
    </Stats>
  );
}

function Sandbox({ node }: { node: NodeView }) {
  const { profile } = node;
  return (
    <Card title="Isolation" aside={<Badge tone={profile.isolation === "process" ? "warn" : "good"}>{profile.isolation}</Badge>}>
      <p>{node.sandbox}</p>
      <p className="mt-2 text-muted text-sm">
        At every start the node tries to break out of each sandbox, and uses the strongest one that holds.
      </p>
      <div className="mt-4">
        <Facts>
          <Fact name="Network for jobs">{profile.network ? "hosts that a job lists" : "none"}</Fact>
          {(profile.gpus?.length ?? 0) > 0 && (
            <Fact name="GPUs">{profile.lends_gpus ? "lent to everyone" : "for the owner and trusted accounts"}</Fact>
          )}
          {node.can_manage && (
            <Fact name="Trusted accounts">
              {profile.trusted?.length ? profile.trusted.join(", ") : <span className="text-muted">none</span>}
            </Fact>
          )}
        </Facts>
      </div>
    </Card>
  );
}

/** Less than an hour is too short for a figure, as the hub's sentence says. */
function knownSpans({ uptime }: NodeView) {
  return uptime?.spans.filter((span) => span.known_ms >= HOUR_MS) ?? [];
}

function About({ node }: { node: NodeView }) {
  const { profile, uptime } = node;
  const properties = Object.entries(profile.properties ?? {});
  return (
    <Card title="About">
      <Facts>
        <Fact name="Owner">{node.owner_name}</Fact>
        <Fact name="ID">
          <Id id={node.id} />
        </Fact>
        <Fact name="Region">
          {node.region || "no region"}
          {node.place && (node.region || profile.place) && <span className="text-muted"> · {node.place}</span>}
        </Fact>
        <Fact name="Joined">
          <Moment ms={node.enrolled_at_ms} />
        </Fact>
        <Fact name="Agent">
          {profile.version || "unknown"} <span className="text-muted">· Python {profile.python}</span>
        </Fact>
        {!!profile.fetches_python?.length && (
          <Fact name="Other Pythons">{profile.fetches_python.join(", ")}, fetched when a job needs one</Fact>
        )}
        <Fact name="System">{profile.platform || "unknown"}</Fact>
        {profile.runtime && (
          <Fact name="Runtime of jobs">
            <span className="font-mono text-sm">{profile.runtime.slice(0, 12)}</span>
          </Fact>
        )}
        {profile.mesh_version && <Fact name="Mesh version">{profile.mesh_version}</Fact>}
        {profile.url && <Fact name="Address">{profile.url}</Fact>}
        <Fact name="Tags">
          {profile.tags?.length ? (
            <span className="flex flex-wrap gap-1.5">
              {profile.tags.map((tag) => (
                <Badge key={tag}>{tag}</Badge>
              ))}
            </span>
          ) : (
            <span className="text-muted">none</span>
          )}
        </Fact>
        {properties.length > 0 && (
          <Fact name="Properties">
            <span className="flex flex-wrap gap-1.5">
              {properties.map(([name, value]) => (
                <Badge key={name}>
                  {name} = {value}
                </Badge>
              ))}
            </span>
          </Fact>
        )}
        {uptime && (
          <Fact name="Uptime">
            {uptime.sentence}
            <span className="mt-1 flex flex-wrap gap-x-4 text-muted text-sm">
              {knownSpans(node).map((span) => (
                <span key={span.hours} className="num">
                  {span.hours === 24 ? "24 h" : `${span.hours / 24} days`}: {ppm(span.share_ppm, 1)}
                </span>
              ))}
            </span>
          </Fact>
        )}
      </Facts>
    </Card>
  );
}
