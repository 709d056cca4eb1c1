-- Presents a claim: from here to the end of this transaction its writes to rows of p_resource are accepted, and nobody takes
-- the lease over before it ends. Several resources by several calls. p_sequence numbers the write, for tables that ask for it. An expired lease that nobody has asked for passes
-- here; the table's expiry policy decides in the guard.
-- The lock comes before any data lock, so that a takeover and the writes cannot deadlock; a rolled-back savepoint takes lock
-- and claim back together. The claim is a local setting bound to the transaction: it cannot outlive it, whatever a pool does.
-- Locks, in order, until the transaction ends: as fence._hold_claim, the rows of fence._covering that cover the resource and the lease row, FOR KEY SHARE.
-- Codes: LF001 superseded or closed, LF006 unknown or wrong secret, LF010 bad argument; 40001 for a snapshot older than the grant.
create function fence.present(
  p_resource text,
  p_token bigint,
  p_secret text,
  p_sequence bigint default null
) returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_set text;
begin
  if p_resource is null or p_token is null or p_secret is null then
    perform fence._check_claim(p_resource, p_token, p_secret);
  end if;
  v_set := set_config('fence.claims', fence._add_claim(fence._claim_lines(), p_resource, p_token, p_secret, p_sequence), true);
  v_set := fence._hold_claim(p_resource);
end
$$;

comment on function fence.present(text, bigint, text, bigint) is
  'Presents a claim for the rest of this transaction and locks its lease against takeover. LF001, LF006, LF010.';
