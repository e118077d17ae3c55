-- The events of an auction site, as the queries of Nexmark read them: one table of three kinds, and a view of each.
CREATE TABLE events (
  kind INT,
  person ROW<id BIGINT, name VARCHAR, email VARCHAR, card VARCHAR, city VARCHAR, state VARCHAR, ts TIMESTAMP(3),
    extra VARCHAR>,
  auction ROW<id BIGINT, item VARCHAR, description VARCHAR, first_bid BIGINT, reserve BIGINT, ts TIMESTAMP(3),
    expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra VARCHAR>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, ts TIMESTAMP(3), extra VARCHAR>,
  ts AS CASE kind WHEN 0 THEN person.ts WHEN 1 THEN auction.ts ELSE bid.ts END,
  WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) WITH ('url' = 'kafka://broker/events');

CREATE VIEW persons AS
  SELECT person.id, person.name, person.email, person.card, person.city, person.state, ts, person.extra
  FROM events WHERE kind = 0;

CREATE VIEW auctions AS
  SELECT auction.id, auction.item, auction.description, auction.first_bid, auction.reserve, ts, auction.expires,
    auction.seller, auction.category, auction.extra
  FROM events WHERE kind = 1;

CREATE VIEW bids AS
  SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, ts, bid.extra FROM events WHERE kind = 2;
